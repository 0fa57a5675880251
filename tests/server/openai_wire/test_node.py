"""The openai package for Node, unchanged but for its address.

Version 7 needs Node 22, which is an npm package of its own. Both are fetched once, into `.venv/share`; where that
cannot be, the test is skipped and says why.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import serving
from tests.server.openai_wire.kept import NODE, NPM_PACKAGES

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


def installed() -> Path:
    """The folder with both packages."""
    if NODE.exists():
        return NODE
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    NODE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=NODE.parent) as scratch:
        folder = Path(scratch) / "npm"
        folder.mkdir()
        asked = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *NPM_PACKAGES]
        try:
            subprocess.run(asked, capture_output=True, timeout=240, check=True)
        except subprocess.SubprocessError as error:
            pytest.skip(f"the npm packages {', '.join(NPM_PACKAGES)} cannot be had: {error}")
        folder.rename(NODE)
    return NODE


def test_the_package_for_node() -> None:
    folder = installed()
    script = folder / "wire.mjs"
    script.write_text(SCRIPT, encoding="utf-8")
    with serving() as api:
        done = subprocess.run(
            [folder / "node_modules/node/bin/node", script, api.address + "/v1"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
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
