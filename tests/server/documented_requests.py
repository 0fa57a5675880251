"""Requests that schemathesis makes up from an OpenAPI document, good and bad, for each operation in a subtest.

They are made when the test runs. `schema.parametrize` makes them in every process of a run, while it collects.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.result import Ok
from schemathesis.generation.meta import TestPhase
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema

EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
ONE_IN = 1 if EXAMPLES else 10
"""One in so many of the requests at the bounds of each parameter and field is sent. There are thousands, the same in
every run; with `HANSARD_EXAMPLES`, as in `make soak`, all are sent."""


def send_all(schema: BaseSchema, address: str, checks: list[Any], subtests: pytest.Subtests, *, examples: int) -> int:
    """Sends as many made-up requests of each operation as `HANSARD_EXAMPLES` says, or `examples`, and runs the checks.

    Returns the number of operations.
    """

    numbers = itertools.count()

    def send(case: Any) -> None:
        if case.meta.phase.name == TestPhase.COVERAGE and next(numbers) % ONE_IN:
            return
        case.call_and_validate(base_url=address, checks=checks)

    chosen = settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    number = 0
    for made in get_all_tests(schema=schema, test_func=send, settings=chosen, given_kwargs=None):
        assert isinstance(made, Ok), made
        operation, run = made.ok()
        number += 1
        with subtests.test(operation.label):
            run()
    return number
