"""Charts as SVG: one point, many, none; with labels for screen readers. And the rankings beside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.web.kit import Node, Site, parse

from hansard import Message, Usage
from hansard.server.web.charts import Bar, columns, nice_limit


def drawn(*values: float) -> Node:
    return parse(columns([Bar(f"{day} <May>", value) for day, value in enumerate(values, 1)], 'A "b"'))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((3,), "1 <May> – 1 <May>: Peak: 3 on 1 <May>"),
        ((1, 12_345, 0), "1 <May> – 3 <May>: Peak: 12.3k on 2 <May>"),
        ((0, 0), "1 <May> – 2 <May>: None in this period"),
    ],
)
def test_a_chart_has_a_label_for_screen_readers(values: tuple[float, ...], said: str) -> None:
    chart = drawn(*values)
    assert chart.one("svg")["aria-label"] == f'A "b", {said}'
    assert all(each["aria-hidden"] == "true" for each in chart.all("p"))
    assert chart.one("p", "reading").text == said.partition(": ")[2]


def test_a_chart_has_axes_and_every_value_in_a_table() -> None:
    chart = drawn(3, 0, 70)
    assert chart.one("p", "scale").words == "100500"
    assert [each.words for each in chart.one("p", "axis").all("span")] == ["1 <May>", "2 <May>", "3 <May>"]
    assert [each.words for each in chart.one("table").all("tr")] == ["1 <May>3", "3 <May>70"]
    assert not drawn(0, 0).all("table")
    assert [nice_limit(each) for each in (0, 5e-324, 0.003, 1, 1.1, 3, 41, 60)] == [1, 1, 0.004, 1, 2, 4, 60, 60]
    assert nice_limit(12_345) == 20_000


def test_a_scale_has_no_number_twice() -> None:
    assert drawn(0, 0).one("p", "scale").words == "0"
    assert drawn(0, 1).one("p", "scale").words == "10"
    assert drawn(0, 5).one("p", "scale").words == "630"


def test_the_highest_column_fills_the_chart_and_none_leaves_it() -> None:
    days = [day.all("rect")[1:] for day in drawn(1, 1_000_000, 0, 500_000).all("g")]
    assert [len(columns) for columns in days] == [1, 1, 0, 1]
    low, high, half = (float(column["height"]) for columns in days for column in columns)
    assert 0 < low < half < high == 100
    assert [float(day.all("rect")[1]["y"]) for day in drawn(5, 10).all("g")] == [50, 0]


def test_models_agents_and_users_are_ranked_by_cost_in_a_currency(site: Site) -> None:
    used = [("cheap", "busy", 900, 0.5), ("dear", "idle", 100, 44.5), ("middle", "idle", 200, 1.25)]
    for model, agent, tokens, cost in used:
        usage = Usage(input_tokens=tokens, cost=cost, model=model)
        site.store.append(model, [Message("assistant", "x", usage=usage)], agent_id=agent)
    page = site.get("/")
    models, agents = (page.tree.one("section", aria_labelledby=f"by-{kind}") for kind in ("model", "agent"))
    assert [each.words for each in models.all("li")] == ["dear $44.50 100", "middle $1.25 200", "cheap $0.50 900"]
    assert models.one("h2").words == "Models cost and tokens, 30 days"
    assert [each.words for each in agents.all("li")] == ["idle $45.75 300", "busy $0.50 900"]
    assert "$46.25" in page.tree.one("dl", "numbers").words


def test_the_period_of_the_figures_can_be_chosen(site: Site) -> None:
    now = datetime.now(UTC)
    for days, cost in ((1, 1.0), (20, 2.0), (60, 4.0)):
        usage = Usage(input_tokens=10, cost=cost, model="m")
        site.store.append(f"c{days}", [Message("assistant", "x", usage=usage, created_at=now - timedelta(days=days))])
    for period, total in (("7", "$1.00"), ("30", "$3.00"), ("90", "$7.00")):
        page = site.get(f"/?days={period}")
        assert page.tree.one("a", aria_current="true").words == f"{period} days"
        assert total in page.tree.one("dl", "numbers").words
        assert len(page.tree.all("svg", "chart")[1].all("g")) == int(period)
    assert site.get("/?days=31").status == 400


def test_errors_are_counted_by_day(site: Site) -> None:
    now = datetime.now(UTC)
    failed = [{"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}]
    site.store.append("a", [Message("user", failed, format="anthropic", created_at=now)], title="a")
    site.store.append("b", [Message("assistant", "x", status="interrupted", created_at=now - timedelta(days=2))])
    site.store.append("old", [Message("assistant", "x", status="blocked", created_at=now - timedelta(days=20))])
    week = site.piece("/errors?days=7")
    assert [each.words.rpartition(" ")[2][-1] for each in week.tree.one("table").all("tr")] == ["1", "1"]
    assert "2 errors: show the conversations" in week
    assert "3 errors" in site.get("/errors?days=30")
    listed = site.get("/errors?days=7").follow("2 errors: show the conversations")
    assert sorted(each.words for each in listed.tree.all("a", "to")) == ["a", "b"]
