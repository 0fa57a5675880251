"""`hansard import` of files of other programs."""

from __future__ import annotations

from tests.cli.shell import Shell
from tests.importers import exports

from hansard.errors import NotFound, ValidationError


def test_a_file_is_recognised_counted_and_stored_once(shell: Shell) -> None:
    exports.chatgpt_zip(shell.folder / "export.zip")
    assert shell("import", "export.zip", "--dry-run", "--json").json["messages"] == 11
    shell.fails(NotFound.exit_code, "stats")
    assert shell("import", "export.zip", "--json").json["new"] == 2
    assert shell("import", "export.zip", "--from", "chatgpt", "--json").json["unchanged"] == 2
    assert "How does it fish?" in shell("show", "chat-1").out


def test_a_table_says_what_came_and_what_did_not(shell: Shell) -> None:
    exports.jsonl(shell.folder / "s1.jsonl", exports.claude_code_lines())
    done = shell("import", "s1.jsonl")
    assert "Claude Code transcripts" in done.out
    assert "not kept: line of the type 'file-history-snapshot', 1 time" in done.out


def test_wrong_options_name_the_remedy(shell: Shell) -> None:
    exports.chatgpt_zip(shell.folder / "export.zip")
    assert "there are chatgpt, " in shell.fails(ValidationError.exit_code, "import", "export.zip", "--from", "nobody")
    assert "--from jsonl" in shell.fails(ValidationError.exit_code, "import", "export.zip", "--map", "role=a")
    assert "no file or folder" in shell.fails(NotFound.exit_code, "import", "missing.zip")
    shell("append", "c", "user", "Hello")
    shell("export", "-o", "own.jsonl")
    assert "--dry-run" in shell.fails(ValidationError.exit_code, "import", "own.jsonl", "--dry-run")
