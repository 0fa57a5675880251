"""Prints the sizes of modules and functions, and fails above the hard limits.

The goals of the house style are modules of 100-400 lines, a median function under 10 lines, and a p90 under 30.
"""

import ast
import statistics
import sys
from pathlib import Path

LOOK_TWICE_LINES = 400
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 100

Sizes = dict[str, int]


def function_sizes(path: Path, source: str) -> Sizes:
    """Returns the lines of each function without its docstring, including nested ones, by `path:line name`."""
    return {
        f"{path}:{node.lineno} {node.name}": _lines(node) - _docstring_lines(node)
        for node in ast.walk(ast.parse(source, str(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return 0 if ast.get_docstring(function, clean=False) is None else _lines(function.body[0])


def measure(root: Path) -> tuple[Sizes, Sizes]:
    modules: Sizes = {}
    functions: Sizes = {}
    for path in sorted(root.rglob("*.py")):
        source = path.read_text("utf-8")
        modules[str(path)] = len(source.splitlines())
        functions |= function_sizes(path, source)
    return modules, functions


def over(sizes: Sizes, limit: int) -> Sizes:
    """Returns what is longer than `limit`, longest first."""
    return {name: lines for name, lines in sorted(sizes.items(), key=lambda item: -item[1]) if lines > limit}


def describe(functions: Sizes) -> str:
    if not functions:
        return "no functions"
    lines = sorted(functions.values())
    p90 = lines[(len(lines) * 9 - 1) // 10]
    longest = max(functions, key=functions.__getitem__)
    return f"median {statistics.median(lines):g}, p90 {p90}, longest {lines[-1]} ({longest})"


def main(root: Path) -> int:
    modules, functions = measure(root)
    print(f"{len(modules)} modules, {len(functions)} functions; function lines: {describe(functions)}")
    for name, lines in over(modules, LOOK_TWICE_LINES).items():
        print(f"look twice: {name} has {lines} lines")
    too_long = over(modules, MAX_MODULE_LINES) | over(functions, MAX_FUNCTION_LINES)
    for name, lines in too_long.items():
        print(f"too long: {name} has {lines} lines", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main(Path("src")))
