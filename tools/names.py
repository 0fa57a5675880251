"""Fail where a module is named after an activity, or where two classes share a name.

A module is a noun: it is named after what it owns. A class name means one thing in the whole source, so that it can be
searched for and talked about.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "hansard"
NOUNS = {"blocking", "listing", "ranking", "settling", "tracing", "testing"}
"""Names that end so and are nouns, or words of docs/glossary.md."""
TWINS = {"Admin", "Blobs", "Records", "SearchTool", "Store"}
"""The blocking API has classes of the same names, in `sync.py`."""


def activities(root: Path) -> list[str]:
    return [str(path) for path in sorted(root.rglob("*ing.py")) if path.stem not in NOUNS]


def shared_names(root: Path) -> dict[str, list[str]]:
    """The classes whose name another class has, and the files of both."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path))
    return {
        name: files
        for name, files in found.items()
        if len(files) > 1
        and not (name in TWINS and len(files) == 2 and any(file.endswith("sync.py") for file in files))
    }


def main() -> int:
    problems = [f"{path} is named after an activity: name it after what it owns" for path in activities(SOURCE)]
    problems += [f"class {name} is in {' and '.join(files)}" for name, files in shared_names(SOURCE).items()]
    print("\n".join(problems) or "every module is a noun, and no two classes share a name")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
