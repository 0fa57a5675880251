"""Takes pictures of every page with data of all kinds, in light, dark and on a phone, for people to look at.

The store is filled by real adapters (LangGraph, OpenAI Agents) with scripted models, by imports (an archive of ChatGPT,
a transcript of Claude Code), by the sample, and with many messages. Needs Chromium and the development dependencies:
`.venv/bin/python -m tools.gallery build/gallery --messages 100000`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from benchmarks import page as benchmark
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage
from playwright.sync_api import Browser, sync_playwright
from tests.adapters.test_deepagents import calling, scripted
from tests.importers import exports
from tools import browser as chromium
from tools.screenshots import DESKTOP, PHONE, serving, take

import hansard.sync
from hansard.server.web.sample_data import load_sample
from hansard.store import Store

PAGES = {
    "overview": "",
    "overview-7": "?days=7",
    "conversations": "conversations",
    "compact": "conversations?density=compact",
    "table": "conversations?view=table",
    "table-sorted": "conversations?view=table&sort=cost&density=compact",
    "filtered": "conversations?user=ann",
    "nothing": "conversations?user=nobody",
    "found": "conversations?q=invoice",
    "begin": "conversations#begin",
    "filters": "filters",
    "langgraph": "c/0d5c8a3e-7f1b-4c1e-9a53-6f0c2d9b8e11",
    "agents": "c/agents-trip",
    "chatgpt": "c/{chatgpt}",
    "claude-code": "c/{claude}",
    "sample-parcel": "c/sample-parcel",
    "sample-parser": "c/sample-parser",
    "sample-team": "c/sample-team",
    "sample-chart": "c/sample-chart",
    "branches": "c/sample-kyoto",
    "long": "c/long",
    "message": "c/agents-trip/m/{message}",
    "access": "c/sample-parcel/access",
    "why": "c/long/why",
    "why-compared": "c/long/why?budget=1000&other_budget=4000",
    "why-answer": "c/sample-team/why?agent=scout&budget=160",
    "search-empty": "search",
    "search": "search?q=customs",
    "search-question": "search?q=Why+is+the+parcel+late%3F",
    "search-nothing": "search?q=xyzzyx",
    "import": "import",
    "admin": "admin",
    "errors": "errors",
    "not-found": "c/nowhere",
    "german": "c/agents-trip?lang=de",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESKTOP, "color_scheme": "light"},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light"},
}


@function_tool
def find_trains(origin: str, destination: str) -> str:
    return f'[{{"from": "{origin}", "to": "{destination}", "leaves": "09:12", "price": 49.9}}]'


async def talk_through_langgraph(store: Store) -> None:
    thread: Any = {"configurable": {"thread_id": "0d5c8a3e-7f1b-4c1e-9a53-6f0c2d9b8e11"}}
    write = calling(
        "write_file",
        "call_1",
        file_path="/report.md",
        content="# Sales\n\n| month | sum |\n|---|---:|\n| May | 12 |",
    )
    said = "I wrote the report to `/report.md`:\n\n| month | sum |\n|---|---:|\n| May | 12 |\n\nAnything else?"
    agent: Any = create_deep_agent(scripted(write, AIMessage(said)), checkpointer=store.langgraph_checkpointer)
    await agent.ainvoke({"messages": [("user", "Please write a short report about the sales in May.")]}, thread)


async def talk_through_agents(store: Store) -> None:
    steps = [
        [function_call("find_trains", {"origin": "Oslo", "destination": "Bergen"}, call_id="call_1")],
        [assistant_message("There is a train at **09:12** for 49.90.\n\n```python\nbook(train='09:12')  # next\n```")],
        [assistant_message("You are welcome!")],
    ]
    agent = Agent(name="travel", model=ScriptedModel(steps), tools=[find_trains])
    session = store.openai_session("agents-trip", user_id="ann", agent_id="travel")
    await Runner.run(agent, "Is there a train from Oslo to Bergen tomorrow morning?", session=session)
    await Runner.run(agent, "Thank you!", session=session)


async def fill(url: str, *, messages: int) -> None:
    async with hansard.connect(url) as store:
        if messages:
            await benchmark.fill(store, max(2, messages // 40), messages, messages // 5)
        await load_sample(store)
        await talk_through_langgraph(store)
        await talk_through_agents(store)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = exports.chatgpt_zip(
            folder / "chatgpt.zip", exports.chatgpt_conversation(), exports.picture_conversation()
        )
        transcript = exports.jsonl(folder / "session.jsonl", exports.claude_code_lines())
        for file in (archive, transcript):
            subprocess.run([sys.executable, "-m", "hansard", "import", str(file), "--url", url], check=True)


def places(url: str) -> dict[str, str]:
    """Returns the ids that the addresses of pages need."""
    with hansard.sync.connect(url) as store:
        listed = list(store.iter_conversations())
        by_source = {each.metadata.get("imported_from"): each.id for each in listed}
        return {
            "chatgpt": by_source.get("chatgpt", ""),
            "claude": next((each for source, each in by_source.items() if source and "claude" in source), ""),
            "message": store.get_messages("agents-trip")[1].id,
        }


def main() -> None:
    parser = argparse.ArgumentParser("python -m tools.gallery", description=__doc__)
    parser.add_argument("into", type=Path)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--look", choices=LOOKS, action="append", help="only this one")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--whole", action="store_true", help="the whole page, not only a window")
    options = parser.parse_intermixed_args()
    options.into.mkdir(parents=True, exist_ok=True)
    make = partial(fill, messages=options.messages)
    with tempfile.TemporaryDirectory() as name, serving(Path(name), make) as address:
        ids = places(f"sqlite:///{name}/sample.db")
        with sync_playwright() as playwright:
            browser: Browser = playwright.chromium.launch(executable_path=chromium.path(), args=["--no-sandbox"])
            for look in options.look or LOOKS:
                for each in options.pages or PAGES:
                    page = browser.new_page(timezone_id="Europe/Oslo", locale="en-GB", **LOOKS[look])
                    file = options.into / f"{each}-{look}.png"
                    take(page, address + PAGES[each].format(**ids), file, whole=options.whole)
                    page.close()
            browser.close()


if __name__ == "__main__":
    main()
