"""The command line: `python -m benchmarks.retrieval`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.retrieval import judgements, recall
from benchmarks.retrieval.judgements import JudgedSet
from benchmarks.retrieval.long_messages import SHAPES
from benchmarks.retrieval.recall import DEPTHS, Outcome
from hansard import __version__
from hansard.errors import HansardError
from hansard.search.embedders import by_name
from hansard.store.search_modes import SearchMode


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        report = [_measured(each, arguments) for each in _sets(arguments)]
    except (HansardError, OSError, ValueError, KeyError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    command = shlex.join(["python", "-m", "benchmarks.retrieval", *(sys.argv[1:] if argv is None else argv)])
    print(f"\nHansard {__version__}; {command}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"command": command, "sets": report}, indent=1), "utf-8")
    return 0


def _sets(arguments: argparse.Namespace) -> list[JudgedSet]:
    sets = [judgements.own(), *map(judgements.long, SHAPES)]
    if arguments.locomo:
        sets.append(judgements.locomo(arguments.locomo))
    if arguments.beam:
        sets.append(judgements.beam(arguments.beam))
    return sets


def _measured(judged: JudgedSet, arguments: argparse.Namespace) -> dict[str, object]:
    embedder = None if arguments.embedder is None else by_name(arguments.embedder)
    modes: list[SearchMode] = ["words"] if embedder is None else ["words", "meaning", "hybrid"]
    with tempfile.TemporaryDirectory() as folder:
        url = arguments.url.replace("{path}", f"{folder}/store")
        report = partial(_report, judged.name)
        outcomes = asyncio.run(recall.measure(judged, url, embedder, modes, {"match": arguments.match}, report))
    _print(judged, outcomes, arguments)
    return {"set": judged.name, "questions": len(judged.questions), "outcomes": [asdict(each) for each in outcomes]}


def _report(name: str, step: str) -> None:
    print(f"{name}: {step}", file=sys.stderr, flush=True)


def _print(judged: JudgedSet, outcomes: Sequence[Outcome], arguments: argparse.Namespace) -> None:
    print(f"\n{judged.name}: {len(judged.questions):,} questions over {judged.messages:,} messages")
    print(
        "unit: one message; recall: the share of a question's messages among the first k hits, mean over the questions "
        "(all: the share of questions with every message); pool: all conversations of the question's user "
        f"({judged.users:,} of them); words: match={arguments.match!r}; embedder: {arguments.embedder}; "
        "no language model"
    )
    heads = [*(f"R@{depth}" for depth in DEPTHS), *(f"all@{depth}" for depth in DEPTHS)]
    print("\n| mode | " + " | ".join(heads) + " | incomplete |\n|---" + "|---" * (len(heads) + 1) + "|")
    for each in outcomes:
        cells = [*each.recall.values(), *each.whole.values()]
        print(f"| {each.mode} | " + " | ".join(f"{cell:.1f}" for cell in cells) + f" | {each.incomplete} |")
    if arguments.kinds:
        for each in outcomes:
            print(f"{each.mode}, R@10: " + ", ".join(f"{kind} {share:.1f}" for kind, share in each.by_kind.items()))
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="LoCoMo's JSON file")
    parser.add_argument("--beam", type=Path, metavar="FOLDER", help="a folder of BEAM, such as chats/100K")
    parser.add_argument("--embedder", metavar="NAME", help="as in `hansard search`; without it, by words alone")
    parser.add_argument("--url", default="sqlite:///{path}.db", help="the store; {path} becomes a fresh file name")
    parser.add_argument("--match", default="auto", help="how words match: all, any or auto (the default)")
    parser.add_argument("--kinds", action="store_true", help="show the recall of each kind of question, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result, too")
    return parser
