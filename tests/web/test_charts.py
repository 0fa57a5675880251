"""Charts as SVG: one point, many, none; with labels for screen readers. And the rankings beside them."""

from __future__ import annotations

import pytest
from tests.web.kit import Node, Site, parse

from hansard import Message, Usage
from hansard.server.web.charts import Bar, columns


def drawn(*values: float) -> Node:
    return parse(columns([Bar(f"{day} <May>", value) for day, value in enumerate(values, 1)], 'A "b"', "things"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((3,), "1 <May> to 1 <May>: most: 3 on 1 <May>"),
        ((1, 12_345, 0), "1 <May> to 3 <May>: most: 12.3k on 2 <May>"),
        ((0, 0), "1 <May> to 2 <May>: none in these days"),
    ],
)
def test_a_chart_has_a_label_for_screen_readers(values: tuple[float, ...], said: str) -> None:
    chart = drawn(*values)
    assert chart.one("svg")["aria-label"] == f'A "b", {said}'
    assert chart.one("p")["aria-hidden"] == "true"
    assert said.partition(": ")[2] in chart.one("p").text


def test_the_highest_column_fills_the_chart_and_none_leaves_it() -> None:
    heights = [float(each["height"]) for each in drawn(1, 1_000_000, 0, 500_000).all("rect", "bar")]
    low, high, none, half = heights
    assert none == 0 < low < half < high
    assert [float(each["y"]) >= 0 for each in drawn(5, 7).all("rect", "bar")] == [True, True]


def test_models_are_ranked_by_cost_and_agents_by_tokens(site: Site) -> None:
    used = [("cheap", "busy", 900, 0.5), ("dear", "idle", 100, 44.5), ("middle", "idle", 200, 1.25)]
    for model, agent, tokens, cost in used:
        usage = Usage(input_tokens=tokens, cost=cost, model=model)
        site.store.append(model, [Message("assistant", "x", usage=usage)], agent_id=agent)
    page = site.get("/")
    models, agents = (page.tree.one("section", aria_labelledby=f"by-{kind}") for kind in ("model", "agent"))
    assert [each.words for each in models.all("li")] == ["dear 44.50", "middle 1.25", "cheap 0.50"]
    assert models.one("h2").words == "Cost by model as reported, 30 days"
    assert [each.words for each in agents.all("li")] == ["busy 900", "idle 300"]
