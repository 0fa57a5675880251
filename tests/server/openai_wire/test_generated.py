"""The tests that OpenAI generates for its own SDK, run against our server: the shape of every answer.

They speak of conversations and threads by fixed ids, which must exist however often a test has deleted them: so they
are made again before each request. What cannot apply is named below; everything else must pass.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from tests import sdist
from tests.server.kit import serving
from tests.server.openai_wire.endpoint import Endpoint, endpoint

from hansard.model import Message
from hansard.server.openai import response_record, stored_completions
from hansard.server.settings import Settings
from hansard.store import Store

TESTS = "tests/api_resources"
FIXED = {"conv_123": "msg_abc", "thread_id": "message_id"}
"""Conversations that the tests speak of, and a message in each."""
RESPONSES = ("resp_677efb5139a88190b512bc3fef8e535d", "response_id")
COMPLETION = "completion_id"
CHOSEN = "not test_method_list_with_all_params and not create_and_run and not (test_responses and (create or compact))"
"""Of those left out, the first page from cursors that name nothing, with limit=0; the second run models, which a store
cannot; the last say nothing at all, or name a conversation and a previous response at once. All are refused."""
PASSED = {
    "test_conversations.py": 80,
    "conversations/test_items.py": 90,
    "beta/test_threads.py": 85,
    "beta/threads/test_messages.py": 110,
    "test_responses.py": 90,
    "responses/test_input_items.py": 20,
    "chat/test_completions.py": 115,
    "chat/completions/test_messages.py": 20,
}
"""How many tests of each file must pass."""


class Seeded:
    """An application before which the conversations are always there."""

    def __init__(self, app: ASGIApp, store: Store) -> None:
        self._app = app
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for conversation, message in FIXED.items():
            await self._store.append(conversation, [Message("user", "x", id=message)], revive=True)
        for id in RESPONSES:
            await self._seed_response(id)
        completion = {**Endpoint().completion(), "id": COMPLETION}
        said = [{"role": "assistant", "content": "x"}]
        await self._store.records.write(stored_completions.records_of(completion, said, {}, None))
        await self._app(scope, receive, send)

    async def _seed_response(self, id: str) -> None:
        message = Message("user", "x", id="msg_abc", conversation_id="conv_123")
        response = {**Endpoint().response(), "id": id, "background": True}
        record = response_record.answered_record(response, "conv_123", [message], [], is_kept=True, is_own=False)
        await response_record.put(self._store, id, record, revision=None, conversation_id="conv_123")


@pytest.mark.timeout(1200)  # a suite, not a test
def test_the_tests_that_openai_generates_pass() -> None:
    try:
        folder = sdist.folder("openai")
    except sdist.Absent as error:
        pytest.skip(str(error))
    with endpoint() as model, serving(settings=Settings(upstream=model.address), wrap=Seeded) as api:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *(f"{TESTS}/{file}" for file in PASSED), "-k", CHOSEN, "-q", "-rfEp"),
                *("-o", "addopts=", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:valkey"),
                *("-p", "no:langsmith_plugin", "-p", "no:schemathesis"),
            ],
            cwd=folder,
            env={**os.environ, "TEST_API_BASE_URL": api.address + "/v1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert Counter(re.findall(rf"^PASSED {TESTS}/([^:]+)", done.stdout, re.MULTILINE)) == PASSED
