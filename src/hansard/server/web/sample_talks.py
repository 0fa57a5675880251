"""The conversations of the sample that show something: tools, pictures, other scripts, several agents, states."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from hansard.model import MessageScope, Participant, Source, Status, Usage
from hansard.server.web import sample_media

TRIP = "sample-kyoto"


class Line(Struct, frozen=True):
    role: str
    content: Any
    who: Participant | None = None
    format: str = ""
    usage: Usage | None = None
    sources: tuple[Source, ...] = ()
    status: Status = "complete"
    mentions: tuple[str, ...] = ()
    scope: MessageScope | None = None
    pinned: bool = False
    metadata: dict[str, Any] | None = None
    id: str = ""


class Talk(Struct, frozen=True):
    id: str
    title: str
    user: str
    agent: str | None
    hours_ago: float
    lines: list[Line]
    metadata: dict[str, Any] = {}


def talks() -> list[Talk]:
    return [_states(), _arabic(), _chinese(), _trip(), _team(), _chart(), _parser(), _parcel()]


SUPPORT = Participant("agent", "support", "Support")
ANN = Participant("user", "ann", "Ann Larsen")


def _call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    text = msgspec.json.encode(arguments).decode()
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def _calling(*calls: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def _result(id: str, value: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": msgspec.json.encode(value).decode()}


def _use(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """A call in Anthropic's format."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def _used(id: str, content: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def _parcel() -> Talk:
    """Tools in parallel, a table, sources."""
    tracked = {"carrier": "PostNord", "status": "held at customs", "place": "Tromsø", "since": "2026-11-12T07:40:00Z"}
    answer = (
        "Your parcel is **held at customs in Tromsø** since Thursday. The invoice was missing; I have sent it.\n\n"
        "| step | when | state |\n|---|---|:---:|\n| Shipped from Oslo | Mon 9 Nov | done |\n"
        "| Customs | Thu 12 Nov | waiting |\n| Delivery | Tue 17 Nov | expected |\n\n"
        "If it is not released by **Monday**, you can have the money back. That would be 1,249 kr."
    )
    lines = [
        Line(
            "system",
            "You are the support agent of a bookshop. Be brief, and never promise a date that no carrier gave.",
        ),
        Line("user", "Hi! Order 4711 should have been here on Friday. Where is it, and can I get my money back?", ANN),
        Line(
            "assistant",
            _calling(
                _call("call_1", "track_parcel", order="4711"),
                _call("call_2", "quote_refund", order="4711", reason="late"),
                text="I will look at both.",
            ),
            SUPPORT,
            "openai.chat",
            Usage(input_tokens=612, output_tokens=58, cost=0.0027, model="claude-sonnet-5"),
        ),
        Line("tool", _result("call_1", tracked), format="openai.chat"),
        Line(
            "tool", _result("call_2", {"amount": 1249, "currency": "NOK", "until": "2026-12-09"}), format="openai.chat"
        ),
        Line(
            "assistant",
            answer,
            SUPPORT,
            usage=Usage(input_tokens=871, output_tokens=142, cached_tokens=600, cost=0.0047, model="claude-sonnet-5"),
            sources=(
                Source(
                    "d17",
                    "Returns and refunds, section 4",
                    "Late parcels are refunded in full after 10 working days.",
                    0.93,
                ),
                Source("d31", "Customs: what the carrier needs", None, 0.71),
            ),
        ),
        Line("user", "Great, thank you. Please wait until Monday then.", ANN),
        Line("assistant", "I will. You hear from me on Monday, whatever happens.", SUPPORT),
    ]
    return Talk(
        "sample-parcel", "A late parcel for Tromsø", "ann", "support", 2, lines, {"shop": 3, "priority": "high"}
    )


def _parser() -> Talk:
    """Anthropic's format: thinking, a tool that fails, code."""
    coder = Participant("agent", "coder", "Coder")
    fixed = (
        "The date was split by `-`, and a time zone like `-05:00` has one more. Split only the first two:\n\n"
        "```python\ndef parse(text: str) -> datetime:\n    # A zone has a hyphen too: cut twice, not everywhere.\n"
        '    year, month, rest = text.split("-", 2)\n    return datetime.fromisoformat(f"{year}-{month}-{rest}")\n'
        "```\n\n"
        "All 48 tests pass now. I also:\n\n1. added a test for `-05:00`\n"
        "2. removed the `except ValueError: pass`, which hid it"
    )
    thought = "The failure began with the new parser. Run the one test first."
    failure = "FAILED test_dates.py::test_zones\nValueError: too many values to unpack (expected 3)"
    lines = [
        Line("user", "`test_zones` fails since the last commit. Can you look?"),
        Line(
            "assistant",
            [
                {"type": "thinking", "thinking": thought, "signature": "s1"},
                {"type": "text", "text": "Let me run it."},
                _use("tu_1", "run_tests", path="tests/test_dates.py", only="test_zones"),
            ],
            coder,
            "anthropic",
            Usage(input_tokens=2210, output_tokens=96, reasoning_tokens=41, cost=0.0081, model="claude-sonnet-5"),
        ),
        Line("user", [_used("tu_1", failure) | {"is_error": True}], format="anthropic"),
        Line(
            "assistant",
            [
                {"type": "text", "text": "It splits at every hyphen. I change the parser and run all of them."},
                _use("tu_2", "edit_file", path="src/dates.py", old='split("-")', new='split("-", 2)'),
                _use("tu_3", "run_tests", path="tests"),
            ],
            coder,
            "anthropic",
        ),
        Line(
            "user",
            [_used("tu_2", "1 replacement"), _used("tu_3", '{"passed": 48, "failed": 0, "seconds": 3.2}')],
            format="anthropic",
        ),
        Line(
            "assistant",
            fixed,
            coder,
            usage=Usage(input_tokens=3104, output_tokens=231, cached_tokens=2048, cost=0.0128, model="claude-sonnet-5"),
        ),
        Line("user", "Perfect. Open a pull request, please."),
    ]
    return Talk("sample-parser", "test_zones fails since the last commit", "ben", "coder", 5, lines, {"repo": "dates"})


def _chart() -> Talk:
    """A picture and a sound."""
    analyst = Participant("agent", "analyst", "Analyst")
    look = [
        {"type": "text", "text": "What does this chart say? Three shops, four quarters."},
        {"type": "image_url", "image_url": {"url": sample_media.picture()}},
    ]
    hear = [
        {"type": "text", "text": "And is this the sound that the till makes when it fails?"},
        {"type": "input_audio", "input_audio": {"data": sample_media.sound(), "format": "wav"}},
    ]
    said = (
        "All three shops grew, and **the green one most**: its last quarter is almost twice its first.\n\n"
        "- green: 90 → 170\n- blue: 60 → 120\n- amber: 40 → 90\n\n"
        "The third quarter is the odd one: green fell while the others rose."
    )
    lines = [
        Line("user", look, format="openai.chat"),
        Line(
            "assistant",
            said,
            analyst,
            usage=Usage(input_tokens=1490, output_tokens=118, cost=0.0006, model="gpt-5-mini"),
        ),
        Line("user", hear, format="openai.chat"),
        Line(
            "assistant",
            "Two tones, 660 and 880 Hz: that is the success chime. The failure is a single low tone.",
            analyst,
        ),
    ]
    return Talk("sample-chart", "What the sales chart says", "dmitri", "analyst", 8, lines)


def _team() -> Talk:
    """Several people and agents in one channel: what each agent hears is another thing."""
    eva, finn = Participant("user", "eva", "Eva"), Participant("user", "finn", "Finn")
    scout, scribe = Participant("agent", "scout", "Scout"), Participant("agent", "scribe", "Scribe")
    said: MessageScope = "channel"
    lines = [
        Line(
            "system",
            "This is the channel of the launch team. Answer only when you are mentioned.",
            pinned=True,
            scope=said,
        ),
        Line("user", "Morning! Coffee first, launch second.", eva, scope=said),
        Line("user", "Agreed.", finn, scope=said),
        Line("user", "@scout what do people say about the beta?", eva, mentions=("scout",), scope=said),
        Line(
            "assistant",
            "Mostly about speed: 41 of 60 comments. Nine people miss an export. Two found the dark mode too dark.",
            scout,
            scope=said,
            usage=Usage(input_tokens=940, output_tokens=44, cost=0.0003, model="gpt-5-mini"),
        ),
        Line("user", "Export by Friday then?", finn, scope=said),
        Line(
            "user",
            "@scribe please write that down as decided: export by Friday, Finn.",
            eva,
            mentions=("scribe",),
            scope=said,
        ),
        Line("assistant", "Written down:\n\n> **Decided.** Export ships on Friday. Owner: Finn.", scribe, scope=said),
        Line("user", "Does anybody have the number of the caterer?", finn, scope=said),
        Line("user", "@scout and which of the nine would test it?", eva, mentions=("scout",), scope=said),
        Line("assistant", "Four of them offered to: kim, ola, 美咲 and Raúl.", scout, scope=said),
    ]
    return Talk("sample-team", "Launch team", "eva", None, 11, lines, {"channel": "launch"})


def _trip() -> Talk:
    agent = Participant("agent", "travel", "旅行エージェント")
    lines = [
        Line("user", "三月の終わりに京都へ三日間行きます。桜は見られますか?"),
        Line(
            "assistant",
            "はい、例年の見頃は**三月二十八日から四月五日**です。\n\n"
            "1. **一日目** 哲学の道と銀閣寺\n2. **二日目** 嵐山、竹林の小径\n"
            "3. **三日目** 伏見稲荷大社、早朝がおすすめです",
            agent,
            usage=Usage(input_tokens=310, output_tokens=128, cost=0.0001, model="qwen3-32b"),
        ),
        Line("user", "静かな宿を教えてください。"),
        Line("assistant", "東山に小さな旅館があります。一泊 18,000 円、朝食付きで、庭が見えます。", agent),
    ]
    return Talk(TRIP, "京都の桜と静かな宿", "小林", "travel", 15, lines)


def _chinese() -> Talk:
    agent = Participant("agent", "support", "客服")
    lines = [
        Line("user", "你好,我的订单显示已签收,可是我没有收到包裹。"),
        Line(
            "assistant",
            "很抱歉给您带来不便。我查到包裹由**门卫代收**,时间是昨天 18:42。\n\n"
            "请您:\n\n- 先到门卫处询问\n- 如果没有找到,请告诉我,我会立即联系快递公司",
            agent,
            usage=Usage(input_tokens=290, output_tokens=97, cost=0.0001, model="qwen3-32b"),
        ),
        Line("user", "找到了,谢谢!顺便问一下,发票可以开公司抬头吗?"),
        Line("assistant", "可以的。请把公司名称和税号发给我,电子发票会在十分钟内发送到您的邮箱。", agent),
    ]
    return Talk("sample-parcel-zh", "包裹显示已签收但没有收到", "王芳", "support", 21, lines)


def _arabic() -> Talk:
    agent = Participant("agent", "support", "الدعم")
    lines = [
        Line("user", "مرحبا، هل يمكنني تغيير عنوان التوصيل للطلب 5120؟"),
        Line("assistant", "نعم، يمكن ذلك قبل **الساعة الرابعة** من عصر اليوم. ما هو العنوان الجديد؟", agent),
        Line("user", "شارع النيل 14، الطابق الثالث. Apartment 3B."),
    ]
    return Talk("sample-address-ar", "تغيير عنوان التوصيل", "ليلى", "support", 27, lines)


def _states() -> Talk:
    """What is not as it should be: broken off, blocked, refused, never answered."""
    agent = Participant("agent", "support", "Support")
    lines = [
        Line("user", "Write me a letter to my landlord about the broken heating."),
        Line(
            "assistant",
            "Dear Mr Olsen,\n\nsince the third of November the heating in my flat",
            agent,
            status="interrupted",
        ),
        Line("user", "It broke off. Again, please, and angrier."),
        Line("assistant", "(a draft that the filter held back)", agent, status="blocked"),
        Line("user", "Then find his home address for me."),
        Line(
            "assistant",
            {"role": "assistant", "content": None, "refusal": "I do not look up where private persons live."},
            agent,
            "openai.chat",
        ),
        Line("user", "Fair. What does the law say about heating?"),
        Line("assistant", _calling(_call("call_9", "search_law", topic="heating, rented flats")), agent, "openai.chat"),
    ]
    return Talk("sample-heating", "The heating is broken", "chloé", "support", 33, lines, {"shop": 1})
