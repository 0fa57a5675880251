"""The mirrors that contract tests run on. `tests/contract/tiers.py` says which tests run on which of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.backends import quick_folder
from tests.contract.many import ServedTarget

from hansard.testing import Target


@pytest.fixture(params=["conversations-delta", "conversations-snapshot", "threads-delta", "threads-snapshot"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    kind, _, mode = request.param.partition("-")
    with quick_folder() as folder:
        index = f"sqlite:///{folder}/index.db"
        url = f"openai+{kind}://{{0}}/v1?mode={mode}&index={index}"
        target = ServedTarget(folder, url, in_memory=True)
        yield target
        target.forget()
