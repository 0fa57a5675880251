"""The openai package for Node, unchanged but for its address.

Version 7 needs Node 22, which is an npm package of its own. Both are fetched once, into `.venv/share`; where that
cannot be, the test is skipped and says why.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import serving
from tests.server.openai_wire.kept import NPM_PACKAGES, npm_folder

SCRIPT = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "anything", maxRetries: 0 });
const made = await client.conversations.create({
  items: [{ role: "user", content: "one" }], metadata: { topic: "orders" },
});
for (let start = 2; start < 42; start += 20) {
  const items = Array.from({ length: 20 }, (_, at) => ({ role: "user", content: String(start + at) }));
  await client.conversations.items.create(made.id, { items });
}
const texts = async (options) => {
  const found = [];
  for await (const item of client.conversations.items.list(made.id, options)) found.push(item.content[0].text);
  return found;
};
const [asc, desc] = [await texts({ order: "asc", limit: 7 }), await texts({})];
const newest = (await client.conversations.items.list(made.id, { limit: 1 })).data[0];
const one = await client.conversations.items.retrieve(newest.id, { conversation_id: made.id });
const left = await client.conversations.items.delete(newest.id, { conversation_id: made.id });
const updated = await client.conversations.update(made.id, { metadata: { a: "b" } });
const refused = async (call) => {
  try { await call(); return null; } catch (error) {
    return [error.constructor.name, error.status, error.code, error.param, typeof error.requestID];
  }
};
const many = Array(21).fill({ role: "user", content: "x" });
const errors = [
  await refused(() => client.conversations.retrieve("conv_never")),
  await refused(() => client.conversations.items.create(made.id, { items: many })),
];
const thread = await client.beta.threads.create({ messages: [{ role: "user", content: "hi" }] });
const messages = await client.beta.threads.messages.list(thread.id);
const gone = await client.conversations.delete(made.id);
console.log(JSON.stringify({
  made, asc, desc, same: one.id === newest.id, left: left.id, updated: updated.metadata, errors,
  said: messages.data[0].content[0].text.value, gone,
}));
"""


def installed(versions: Sequence[str] = NPM_PACKAGES) -> Path:
    """The folder with the packages."""
    kept = npm_folder(versions)
    if kept.exists():
        return kept
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        folder = Path(scratch) / "npm"
        folder.mkdir()
        asked = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *versions]
        try:
            subprocess.run(asked, capture_output=True, timeout=240, check=True)
        except subprocess.SubprocessError as error:
            pytest.skip(f"the npm packages {', '.join(versions)} cannot be had: {error}")
        folder.rename(kept)
    return kept


def run(folder: Path, script: str, *arguments: str) -> Any:
    """What a script prints as JSON."""
    path = folder / f"{hashlib.sha256(script.encode()).hexdigest()[:16]}.mjs"
    path.write_text(script, encoding="utf-8")
    done = subprocess.run(
        [folder / "node_modules/node/bin/node", path, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_package_for_node() -> None:
    folder = installed()
    with serving() as api:
        said = run(folder, SCRIPT, api.address + "/v1")
    numbers = ["one", *map(str, range(2, 42))]
    assert said["asc"] == numbers
    assert said["desc"] == numbers[::-1]
    id = said["made"]["id"]
    assert (said["same"], said["left"], said["updated"]) == (True, id, {"a": "b"})
    assert said["errors"] == [
        ["NotFoundError", 404, "not_found", None, "string"],
        ["BadRequestError", 400, "array_above_max_length", "items", "string"],
    ]
    assert said["said"] == "hi"
    assert said["gone"] == {"id": id, "object": "conversation.deleted", "deleted": True}
