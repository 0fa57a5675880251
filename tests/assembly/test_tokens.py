"""What things cost: text in any script, images, tools; estimates corrected by what providers reported."""

from __future__ import annotations

import sys

import pytest

from hansard import formats
from hansard.assembly import ByteCounter, Tokenizer
from hansard.assembly import tokens as costs
from hansard.cache import Cache
from hansard.model import Message, Usage

ENGLISH = "The weather is nice today, so let us take a walk in the park. Please translate the contract by Friday."
CHINESE = "敏捷的棕色狐狸跳过了懒狗。今天天气很好，我们去公园散步吧。请把这份合同翻译成英文，并在周五之前发给我。"
JAPANESE = "今日は天気がいいので、公園を散歩しましょう。契約書を英語に翻訳して、金曜日までに送ってください。"
KOREAN = "오늘은 날씨가 좋으니 공원을 산책합시다. 계약서를 영어로 번역해서 금요일까지 보내 주세요."

COUNTER = ByteCounter()


def cost(message: Message) -> int:
    return costs.cost(formats.read(message), COUNTER)


def test_english_is_characters_over_four() -> None:
    assert COUNTER.count(ENGLISH) == (len(ENGLISH) + 3) // 4
    assert COUNTER.count("") == 0


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, KOREAN], ids=["zh", "ja", "ko"])
def test_the_estimate_is_near_a_real_tokenizer(text: str) -> None:
    real = Tokenizer("o200k_base").count(text)
    assert 0.8 * real <= COUNTER.count(text) <= 1.2 * real
    assert len(text) / 4 < 0.5 * real, "characters / 4 alone would be far off"


def test_the_tokenizer_counts_exactly_and_is_asked_once() -> None:
    assert Tokenizer().count("hello world") == 2
    tokenizer = costs.remembering(Tokenizer())
    assert tokenizer.is_exact
    assert tokenizer.name == "o200k_base"
    assert tokenizer.count("hello world") == 2
    assert tokenizer.count("hello world") == 2
    long = "word " * 1000
    held = sys.getrefcount(long)
    assert tokenizer.count(long) == tokenizer.count(long) > 900
    assert sys.getrefcount(long) == held, "a long text is not held in memory"
    assert tokenizer.count("<|endoftext|>") > 1, "typed by a user, it is text"
    assert costs.remembering(None) is costs.remembering(costs.DEFAULT_COUNTER)


def test_no_more_counts_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Length:
        name = "length"
        is_exact = False

        def count(self, text: str) -> int:
            return len(text)

    monkeypatch.setattr(costs, "_counts", Cache(10))
    counter = costs.remembering(Length())
    assert [counter.count("x" * number) for number in range(25)] == list(range(25))
    assert 0 < len(costs._counts) <= 10


def test_an_image_costs_the_same_however_large() -> None:
    small, large = (
        Message("user", [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * size}"}}], id="m")
        for size in (4, 400_000)
    )
    prices = {cost(Message("user", each.content, format="openai.chat")) for each in (small, large)}
    assert prices == {costs.DEFAULT_PRICES.message + costs.DEFAULT_PRICES.image}


def test_every_part_has_a_cost() -> None:
    bare = cost(Message("user", [], format="parts"))
    for part in (
        {"type": "text", "text": "word"},
        {"type": "image", "data": "AAAA"},
        {"type": "audio", "data": "AAAA"},
        {"type": "document", "data": "AAAA"},
        {"type": "document", "text": "word"},
        {"type": "tool_call", "id": "1", "name": "f", "arguments": {"a": 1}},
        {"type": "tool_result", "id": "1", "output": {"a": 1}},
        {"type": "reasoning", "text": "word"},
        {"type": "refusal", "text": "word"},
    ):
        assert cost(Message("user", [part], format="parts")) > bare, part
    assert cost(Message("user", {"any": "thing"}, format="json")) > bare
    assert cost(Message("user", [{"type": "odd"}], format="parts")) == bare, "it is not sent"


def test_tools_cost() -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    assert costs.tools_cost([tool, tool], COUNTER) == 2 * costs.tools_cost([tool], COUNTER) > 0


def reported(output: int, reasoning: int = 0) -> Message:
    return Message("assistant", "x", usage=Usage(output_tokens=output, reasoning_tokens=reasoning))


def test_estimates_are_corrected_by_reported_usage() -> None:
    assert costs.calibration([(reported(150, reasoning=30), 100)] * 3) == pytest.approx(1.2)
    assert costs.calibration([(reported(150), 100)] * 2) == 1.0, "too few to tell"
    assert costs.calibration([(Message("assistant", "x"), 100)] * 9) == 1.0
    assert costs.calibration([(reported(10_000), 10)] * 3) == 2.0, "one odd report must not empty a prompt"
    assert costs.calibration([(reported(1), 100)] * 3) == 0.5
