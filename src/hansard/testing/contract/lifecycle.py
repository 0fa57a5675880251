"""Statistics, checks, tenants, backups, closing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hansard.errors import Closed, HansardError, Unsupported
from hansard.model import Message, Problem, Usage
from hansard.testing.clock import Clock
from hansard.testing.comparison import state
from hansard.testing.contract.base import Contract, history, races, require, require_url, say
from hansard.testing.contract.blobs import SIZE, picture
from hansard.testing.contract.calls import CALLS, supported
from hansard.testing.targets import Driver, Mode, Target


class TestStats(Contract):
    def test_stats_count_one_tenant_and_admin_stats_all(self, store: Driver) -> None:
        say(store, "c", "a", "b")
        say(store, "d", "c")
        say(store.tenant("acme"), "c", "x")
        stats = store.stats()
        assert stats.backend == store.capabilities.name
        assert (stats.conversations, stats.messages) == (2, 3)
        whole = store.admin.stats()
        assert (whole.tenants, whole.conversations, whole.messages) == (2, 3, 4)

    def test_stats_spread_messages_over_the_active_days(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        assert store.stats().active == {}
        day = clock.now.date()
        say(store, "c", "a", "b", "c")
        say(store.tenant("acme"), "c", "x")
        clock.advance(timedelta(days=1))
        say(store, "c", "d", "e")
        say(store, "d", "x")
        today, before = (day + timedelta(days=1)).isoformat(), day.isoformat()
        # Five messages spread over two days, and one of today; a message with a given time counts for its own day.
        assert store.stats().active == {before: 2, today: 4}
        assert store.admin.stats().active == {before: 3, today: 4}
        store.append("old", [Message("user", "x", created_at=datetime(2020, 2, 29, 23, 59, tzinfo=UTC))])
        assert store.stats().active == {"2020-02-29": 1, before: 2, today: 4}

    def test_stats_count_unindexed_messages(self, store: Driver) -> None:
        if store.capabilities.search != "index":
            assert store.stats().unindexed is None
            return
        say(store, "c", "a", "b")
        assert store.stats().unindexed in range(3)
        assert store.tenant("acme").stats().unindexed == 0

    def test_stats_count_records_and_blobs(self, store: Driver) -> None:
        require(store, "records", "blobs")
        store.records.put(["n"], "k", 1)
        store.user("u").records.put(["n"], "k", 1)
        say(store, "c", picture(1))
        stats = store.stats()
        assert (stats.records, stats.blobs, stats.blob_bytes) == (2, 1, SIZE)

    def test_reading_a_tenant_does_not_create_it(self, store: Driver) -> None:
        assert store.tenant("ghost").get_conversation("c") is None
        assert store.tenant("ghost").stats().conversations == 0
        assert store.admin.stats().tenants == 0
        assert store.admin.tenants() == []

    def test_check_finds_no_problem_in_a_sound_store(self, store: Driver) -> None:
        for tenant in ("a", "b"):
            for number in range(3):
                say(store.tenant(tenant), f"c{number}", "x")
        assert store.check() == []
        found = list(store.admin.check())
        assert [each for each in found if isinstance(each, Problem)] == []
        assert found[-1] == 6, "and it reports how many conversations it has checked"


class TestTenants(Contract):
    def test_tenants_are_listed_in_order(self, store: Driver) -> None:
        assert store.admin.tenants() == []
        for tenant in ("b", "a", "c"):
            say(store.tenant(tenant), "c", "x")
        if store.capabilities.records:
            store.tenant("d").records.put(["n"], "k", 1)
        expected = ["a", "b", "c", "d"] if store.capabilities.records else ["a", "b", "c"]
        assert store.admin.tenants() == expected

    def test_a_tenant_with_only_records_is_listed(self, store: Driver) -> None:
        require(store, "records")
        store.tenant("plain").records.put(["n"], "k", 1)
        store.tenant("walled").user("u").records.put(["n"], "k", 1)
        self.assert_listed(store, "plain", "walled")

    def test_a_tenant_with_only_blobs_is_listed(self, store: Driver) -> None:
        require(store, "blobs")
        store.tenant("a").blobs.put(b"x")
        self.assert_listed(store, "a")
        assert store.admin.delete_tenant("a").blobs == 1
        self.assert_listed(store)

    def test_a_tenant_with_only_tombstones_is_not_listed(self, store: Driver) -> None:
        view = store.tenant("a")
        view.append("c", Message("user", "x", usage=Usage(3)))
        assert view.delete_conversation("c")
        self.assert_listed(store)

    def assert_listed(self, store: Driver, *tenants: str) -> None:
        assert store.admin.tenants() == list(tenants)
        assert store.admin.stats().tenants == len(tenants)
        for tenant in tenants:
            assert store.tenant(tenant).stats().tenants == 1

    def test_deleting_a_tenant_deletes_everything_in_it_and_nothing_else(self, store: Driver) -> None:
        for tenant in ("a", "b"):
            view = store.tenant(tenant)
            say(view, "c", "x", picture(1))
            say(view, "d", "y")
            if store.capabilities.records:
                view.records.put(["n"], "k", 1)
        before = state(store.tenant("b"))
        receipt = store.admin.delete_tenant("a")
        assert (receipt.conversations, receipt.messages) == (2, 3)
        assert receipt.records == (1 if store.capabilities.records else 0)
        assert receipt.blobs == (1 if store.capabilities.blobs else 0)
        assert store.admin.tenants() == ["b"]
        assert store.tenant("a").get_conversation("c") is None
        assert state(store.tenant("b")) == before
        assert not store.admin.delete_tenant("a")
        say(store.tenant("a"), "c", "again")
        assert history(store.tenant("a"), "c") == ["again"]


class TestBackup(Contract):
    def test_a_backup_opens_with_the_state_of_its_time(
        self, store: Driver, mode: Mode, clock: Clock, target: Target, tmp_path: Path
    ) -> None:
        require(store, "backup")
        url = require_url(target)
        assert target.folder is not None
        say(store, "c", "a", picture(1), {"b": 1}, title="t")
        say(store.tenant("acme"), "c", "x")
        before = state(store)
        path = store.backup(tmp_path / "copy")
        say(store, "c", "later")
        copied = Target(f"{url.partition(':')[0]}:///{path}")
        try:
            copy = copied.open(mode, clock=clock)
            assert state(copy) == before
            assert history(copy.tenant("acme"), "c") == ["x"]
            assert copy.check() == []
        finally:
            copied.close()

    def test_a_backup_never_overwrites_a_file(self, store: Driver, tmp_path: Path) -> None:
        require(store, "backup")
        say(store, "c", "a")
        there = tmp_path / "there"
        there.write_text("precious")
        with pytest.raises(HansardError):
            store.backup(there)
        assert there.read_text() == "precious"

    def test_a_backend_without_backup_refuses(self, store: Driver, tmp_path: Path) -> None:
        if store.capabilities.backup:
            pytest.skip("it has a backup")
        with pytest.raises(Unsupported) as refused:
            store.backup(tmp_path / "copy")
        assert refused.value.capability == "backup"


@races
class TestClosing(Contract):
    def test_every_call_on_a_closed_store_raises_closed(self, store: Driver, subtests: pytest.Subtests) -> None:
        say(store, "victim", "x")
        calls = {name: call for name, call in CALLS.items() if supported(store, name)}
        store.close()
        for name, call in calls.items():
            with subtests.test(name), pytest.raises(Closed):
                call(store)

    def test_closing_twice_is_allowed(self, store: Driver) -> None:
        say(store, "c", "x")
        store.close()
        store.close()

    def test_closing_the_store_closes_its_views(self, store: Driver) -> None:
        view = store.user("u")
        say(view, "c", "x")
        store.close()
        with pytest.raises(Closed):
            view.get_messages("c")
