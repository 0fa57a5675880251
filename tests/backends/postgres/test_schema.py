"""The tables: their SQL, their plans, their migrations, and schemas that are not ours."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.backends.postgres.kit import play, raw
from tests.servers import postgres

import hansard
import hansard.sync
from hansard.analysis import VERSION, Lookup, parse_query
from hansard.backends.postgres import index, read, schema, search_sql, tenant_data
from hansard.backends.postgres.lexemes import Expression
from hansard.backends.postgres.options import parse
from hansard.backends.postgres.queries import QUERIES, combined, in_schema
from hansard.contract.types import Context, ConversationQuery, MessageQuery, RecordQuery, StoredBranch
from hansard.model import EPOCH
from hansard.urls import Url

SOURCE = Path(str(resources.files("hansard.backends.postgres")))


@pytest.fixture
def place() -> Iterator[str]:
    """The name of a schema that does not exist yet."""
    name = postgres.new_schema()
    yield name
    postgres.run(postgres.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE"))


def url_of(place: str) -> str:
    return postgres.with_schema(place)


async def make(place: str) -> None:
    async with hansard.connect(url_of(place)) as store:
        await store.append_message("c", "user", "hello")


COLUMNS = """
    SELECT table_name, column_name, data_type, is_nullable, collation_name FROM information_schema.columns
    WHERE table_schema = $1 ORDER BY 1, 2
"""
INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = $1 ORDER BY 1, 2"
POLICIES = "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies WHERE schemaname = $1 ORDER BY 1, 2"


async def described(connection: Any, place: str) -> list[tuple[str, ...]]:
    found = [row for sql in (COLUMNS, INDEXES, POLICIES) for row in await connection.fetch(sql, place)]
    return [tuple(str(value).replace(place, "hansard") for value in row) for row in found]


def test_schema_sql_equals_all_migrations(place: str) -> None:
    async def check() -> None:
        await make(place)
        async with raw() as connection:
            whole = f"{place}_whole"
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(f"CREATE SCHEMA {whole}")
            await connection.execute(in_schema((SOURCE / "schema.sql").read_text(), whole))
            expected = [
                tuple(value.replace("hansard_whole", "hansard") for value in row)
                for row in await described(connection, whole)
            ]
            await transaction.rollback()
            assert await described(connection, place) == expected
            assert len(expected) > 100

    play(check)


def test_every_query_is_used_and_every_used_name_exists() -> None:
    code = "".join(path.read_text() for path in SOURCE.glob("*.py"))
    used = set(re.findall(r'\.(?:all|one|run|_store)\(\s*(?:link, batch, )?"(\w+)"', code))
    used |= set(re.findall(r'\b_ask\("(\w+)"', code))
    assert used == set(QUERIES)


def test_every_key_begins_with_the_tenant_and_the_conversation(place: str) -> None:
    """So a sharded PostgreSQL can distribute every table by its first column, and those of a conversation by both."""

    async def check() -> None:
        await make(place)
        async with raw() as connection:
            found = await connection.fetch(INDEXES, place)
            unique: dict[str, list[list[str]]] = {row[0]: [] for row in found}
            for table, _, definition in found:
                if "UNIQUE" in definition:
                    unique[table].append(re.search(r"\((.*?)\)", definition)[1].split(", "))  # type: ignore[index]
        of_conversations = {"branches", "messages", "summaries", "blob_uses", "search", "search_queue"}
        for table in schema.TABLES:
            assert unique[table], table
            for columns in unique[table]:
                assert columns[0] == "tenant", (table, columns)
                if table in of_conversations:
                    assert columns[1] == "conversation", (table, columns)

    play(check)


def test_all_text_sorts_by_code_point(place: str) -> None:
    async def check() -> None:
        await make(place)
        async with raw() as connection:
            found = await connection.fetch(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1 AND "
                "data_type = 'text' AND collation_name IS DISTINCT FROM 'C' AND table_name <> 'migrations'",
                place,
            )
            assert found == []

    play(check)


# Plans


HOT: dict[str, tuple[Any, ...]] = {
    "lock_conversation": ("t", "c7"),
    "find_branches": ("t", "c7"),
    "find_heads": ("t", ["c7", "c8"]),
    "find_messages": ("t", "c7", ["m7-1"]),
    "read_runs": ("t", "c7", [1], [0], [1 << 60]),
    "newest_of_runs": ("t", "c7", [1], [0], [1 << 60], 50),
    "count_runs": ("t", "c7", [1], [0], [1 << 60]),
    "last_time_without": ("t", "c7", ["m7-10"], [1], [8], [1 << 60]),
    "remove_messages": ("t", "c7", [1], [1]),
    "remove_runs": ("t", "c7", [1], [0], [1 << 60]),
    "wipe_messages": ("t", "c7"),
    "wipe_everything": ("t", "c7"),
    "read_segments": ("t", "c7", [1], 0, 100, 1 << 40),
    "find_records": ("t", "", [b"n\0"], ["k"]),
    "find_tombstones": ("t", ["x"]),
    "find_blobs": ("t", ["x"]),
    "find_summaries": ("t", "c7"),
    "stamps": ("t", ["c7"]),
    "participations": ("t", "ann", None, 0, 100),
    "expired_conversations": (1, 10),
    "conversations_after": ("t", "t", "c7", 100),
    "save_counts": ("t", ["c7"], ["main"], [1]),
    "list_tenants": (),
    "conversations_by_id": ("t", ["c7"]),
    "queued": ("t", "", 0, 0, None, 100, 1000, 1),
    "queued_tenants": (),
    "search_places": ("t", "c7"),
    "delete_strays": ("t", "c7", 100),
    "count_strays": ("t", "c7", 100, None),
    "count_queued": (100,),
    "queue_message": ("t", "c7", 1, 1),
    "queue_conversations": ("t", ["c7"]),
    "index_messages": ("t", 1, ["c7"], ["c7"], [1], [1], ["5"], [None], [1], [False], ["'x'"], [1]),
    "other_terms": ("t", "c7", [1], [1], [1], ["'x'"], [1]),
}


@pytest.fixture(scope="module")
def full() -> Iterator[str]:
    """A schema with enough in it that a scan would be dear, and with statistics that say so."""
    name = postgres.new_schema()

    async def fill() -> None:
        await make(name)
        async with raw() as connection:
            await connection.execute(in_schema(FILL, name))

    asyncio.run(fill())
    yield name
    postgres.drop(name)


FILL = """
    INSERT INTO hansard.conversations SELECT 't', 'c' || n, 'u' || n % 50, 'a' || n % 50, NULL, NULL, NULL, NULL,
        n, n, n, n, 10, 1, 'main', NULL, NULL, 10, false, 1, 1, n FROM generate_series(1, 3000) AS n;
    INSERT INTO hansard.branches SELECT 't', 'c' || n, 'main', 1, '{}', '{}', NULL, NULL, NULL, n
        FROM generate_series(1, 3000) AS n;
    INSERT INTO hansard.messages SELECT 't', 'c' || n, 1, seq, 'm' || n || '-' || seq, 'user', NULL, 'text', 4, seq,
        NULL, NULL, NULL, NULL FROM generate_series(1, 3000) AS n, generate_series(1, 10) AS seq;
    INSERT INTO hansard.search SELECT tenant, conversation, line, seq, created_at, false,
        ('common ' || CASE WHEN conversation = 'c1500' THEN 'rare' ELSE 'x' || seq END)::tsvector
        FROM hansard.messages;
    INSERT INTO hansard.usage SELECT 't', '2026-01-' || 10 + n % 20, 'u' || n, '', '', 1, 1, 1, 1, 1, 0
        FROM generate_series(1, 3000) AS n;
    ANALYZE hansard.conversations, hansard.branches, hansard.messages, hansard.search, hansard.usage;
"""


async def plan_of(place: str, sql: str, values: tuple[Any, ...], settings: dict[str, str] | None = None) -> str:
    """As a session without our settings would make it, or with them: an index must be the planner's own choice."""
    async with raw() as connection:
        for name, value in (settings or {}).items():
            await connection.execute(f"SET {name} = {value}")
        rows = await connection.fetch(f"EXPLAIN {in_schema(sql, place)}", *values)
        return "\n".join(row[0] for row in rows)


def test_the_usage_of_a_user_is_looked_up_on_each_day(full: str) -> None:
    """Not by reading that of all users: only newer servers can skip a column of an index."""
    plan = asyncio.run(plan_of(full, QUERIES["delete_usage_of"], ("t", "u7")))
    assert re.search(r"Index Cond: .*\(day = ANY .*\(user_id = ", plan), plan


def assert_indexed(plan: str) -> None:
    assert not re.search("Seq Scan on (conversations|branches|messages|search|usage)\\b", plan), plan


@pytest.mark.parametrize("name", HOT)
def test_a_hot_query_uses_an_index(full: str, name: str) -> None:
    plan = asyncio.run(plan_of(full, QUERIES[name], HOT[name]))
    assert_indexed(plan)


def test_the_limits_of_a_pass_are_those_of_its_query() -> None:
    """With a smaller one in the query, a sweep would end after its first pass."""
    assert re.findall(r"LIMIT (\d+)", QUERIES["queued"]) == [str(index.LONG_PASS), str(index.SHORT_PASS)]


@pytest.mark.parametrize(("given", "most"), [("NULL", 200), ("ARRAY['c1500', 'c2999']", 20)])
def test_a_pass_of_the_index_reads_no_more_of_a_long_queue_than_it_needs(full: str, given: str, most: int) -> None:
    """With the plan that the server makes for all parameters. A pass that read a queue of millions took a second."""

    async def plan() -> str:
        async with raw() as connection, connection.transaction():
            await connection.execute(
                in_schema(
                    "INSERT INTO hansard.search_queue SELECT tenant, conversation, line, seq FROM hansard.messages "
                    "ON CONFLICT DO NOTHING; ANALYZE hansard.search_queue; "
                    "SET LOCAL plan_cache_mode = force_generic_plan; "
                    f"PREPARE next AS {QUERIES['queued']}",
                    full,
                )
            )
            rows = await connection.fetch(
                f"EXPLAIN (ANALYZE) EXECUTE next('t', 'c', 0, 0, {given}, 200, 8000000, {VERSION})"
            )
            await connection.execute("DEALLOCATE next")
            return "\n".join(row[0] for row in rows)

    text = asyncio.run(plan())
    assert not re.search(r"Parallel|Seq Scan on search_queue|Rows Removed by Filter", text), text
    read = re.findall(r"on search_queue\S* .*actual time=\S+ rows=([\d.]+) loops=(\d+)", text)
    assert 0 < sum(float(rows) * int(loops) for rows, loops in read) <= most, text


@pytest.mark.parametrize("count", [1, 20_000])
def test_each_of_many_ids_is_looked_up_in_the_index(place: str, count: int) -> None:
    """Without statistics too, as after a bulk append: not by comparing every message with every id."""

    async def check() -> None:
        await make(place)
        plan = await plan_of(place, QUERIES["find_messages"], ("t", "c", [f"m{n}" for n in range(count)]))
        assert re.search(r"Index Cond: .*\(id = wanted\.id\)", plan), plan

    play(check)


@pytest.mark.parametrize("count", [1, 20_000])
def test_what_is_left_is_looked_for_from_the_end_of_each_line(full: str, count: int) -> None:
    """What goes is looked up in a hash, however much it is: not by comparing every message with every id."""
    values = ("t", "c7", [f"m{n}" for n in range(count)], [1], [8], [1 << 60])
    for settings in (None, options_of(full).settings):
        plan = asyncio.run(plan_of(full, QUERIES["last_time_without"], values, settings))
        assert "Index Scan Backward using messages_pkey" in plan, plan
        assert re.search(r"NOT \((ANY \(\w+ = \()?\(?hashed SubPlan", plan), plan


def test_several_queries_in_one_statement_use_the_indexes_of_each(full: str) -> None:
    names = ["find_heads", "find_messages", "find_summaries", "last_time_without", "count_runs"]
    values = [value for name in names for value in HOT[name]]
    plan = asyncio.run(plan_of(full, combined(tuple(QUERIES[name] for name in names)), tuple(values)))
    assert_indexed(plan)


def test_an_append_uses_indexes(full: str) -> None:
    conversations: list[Any] = [["c7"], [""], [7], [8], [None], [1], [1], [1], [1], [1], [1], [1]]
    messages: list[Any] = [["c7"], [1], [11], ["m"], ["user"], [None], ["x"], [1], [1], *[[None]] * 4, [False]]
    plan = asyncio.run(plan_of(full, QUERIES["append"], ("t", *conversations, *messages, "channel", None)))
    assert_indexed(plan)
    assert "Index Scan using conversations_pkey" in plan, plan


@pytest.mark.parametrize(
    "query",
    [
        MessageQuery(newest_first=True, limit=50),
        MessageQuery(limit=20, above=(0, 3)),
        MessageQuery(limit=20, below=(0, 8), newest_first=True, branch="main"),
        MessageQuery(limit=20, roles=frozenset({"user"}), max_bytes=1000),
    ],
)
def test_a_page_is_one_run_of_the_key(full: str, query: MessageQuery) -> None:
    branch = StoredBranch("side", 2, ((1, 5),))
    for sql, values in (
        read.select_plain(Context("t", EPOCH), "c7", query),
        read.select_messages(Context("t", EPOCH), "c7", query, branch),
    ):
        plan = asyncio.run(plan_of(full, sql, tuple(values)))
        assert_indexed(plan)
        assert re.search(r"Index Scan (Backward )?using messages_pkey", plan), plan


@pytest.mark.parametrize("sort", ["last_message_at", "updated_at"])
@pytest.mark.parametrize("owner", [{}, {"user_id": "u7"}, {"agent_id": "a7"}])
def test_a_listing_walks_an_index_in_order(full: str, sort: str, owner: dict[str, str]) -> None:
    query = ConversationQuery(sort=sort, below=(2000, "x"), **owner)  # type: ignore[arg-type]
    sql, values = read.select_conversations(Context("t", EPOCH), query, 21, 0)
    plan = asyncio.run(plan_of(full, sql, tuple(values)))
    assert_indexed(plan)
    assert "Index Scan Backward using conversations_by_" in plan, plan
    assert "Sort" not in plan, plan


def test_a_users_listing_walks_an_index_and_looks_for_memberships_by_key(full: str) -> None:
    query = ConversationQuery(user_id="u7", below=(2000, "x"))
    sql, values = read.select_own(Context("t", EPOCH, user="u7"), query, ("hansard", "members", "u7"))
    plan = asyncio.run(plan_of(full, sql, tuple(values)))
    assert_indexed(plan)
    assert "Index Scan Backward using conversations_by_" in plan, plan
    assert "records_pkey" in plan, plan
    assert "Sort" not in plan, plan


def test_a_scan_of_records_walks_the_key(full: str) -> None:
    sql, values = tenant_data.select_records(Context("t", EPOCH), RecordQuery(prefix=("n",)))
    plan = asyncio.run(plan_of(full, sql, tuple(values)))
    assert "records_pkey" in plan, plan


def test_pinned_messages_are_found_by_their_index(full: str) -> None:
    query = MessageQuery(pinned=True, newest_first=True, limit=10)
    for sql, values in (
        read.select_plain(Context("t", EPOCH), "c7", query),
        read.select_messages(Context("t", EPOCH), "c7", query, StoredBranch("main", 1)),
    ):
        plan = asyncio.run(plan_of(full, sql, tuple(values)))
        assert_indexed(plan)
        assert "messages_pinned" in plan, plan


LOOKUPS = [
    Lookup(parse_query("common")),
    Lookup(parse_query("rare"), user_id="u7", since=EPOCH),
    Lookup(parse_query('"rare common" -x'), conversation_id="c7", below=(5, 5, "c9")),
    Lookup(parse_query("rar*"), roles=frozenset({"user"}), agent_id="a7", all_branches=True),
]
COMMON = Expression("'t' & ('common' | 'any')", "('common' | 'any')", exact=True)
RARE = Expression("'t' & ('rare' | 'any')", "('rare' | 'any')", exact=True)


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_search_walks_over_the_newest_without_sorting(full: str, lookup: Lookup) -> None:
    """A common word sorts nothing: the index of times gives the order, and as much of it as is needed."""
    for walked in (500, None):
        sql, values = search_sql.select_walked(Context("t", EPOCH), lookup, COMMON, lookup.below, 11, walked)
        for settings in (None, options_of(full).settings):
            plan = asyncio.run(plan_of(full, sql, tuple(values), settings))
            assert_indexed(plan)
            assert "Index Scan Backward using search_by_time" in plan, plan
            assert "Sort" not in plan, plan


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_search_looks_terms_up(full: str, lookup: Lookup) -> None:
    """A rare word scans nothing: its rows are found by their terms, and only those are sorted."""
    sql, values = search_sql.select_sorted(Context("t", EPOCH), lookup, RARE, lookup.below, 11, 5000)
    for settings in (None, options_of(full).settings):
        plan = asyncio.run(plan_of(full, sql, tuple(values), settings))
        assert_indexed(plan)
        assert "Bitmap Index Scan on search_by_terms" in plan, plan
        assert "search_by_time" not in plan, plan


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_both_steps_in_one_statement_are_the_same(full: str, lookup: Lookup) -> None:
    sql, values = search_sql.select_quick(Context("t", EPOCH), lookup, RARE, 11, 500, 5000)
    for settings in (None, options_of(full).settings):
        plan = asyncio.run(plan_of(full, sql, tuple(values), settings))
        assert_indexed(plan)
        assert "Index Scan Backward using search_by_time" in plan, plan
        assert "Bitmap Index Scan on search_by_terms" in plan, plan
        assert plan.count("Sort Key") == 1, plan
        assert re.search(r"Sort Key: found\.created_at DESC", plan), plan


def test_what_waits_to_be_indexed_is_found_by_its_key(full: str) -> None:
    sql, values = search_sql.select_tail(Context("t", EPOCH), LOOKUPS[1])
    plan = asyncio.run(plan_of(full, sql, tuple(values), options_of(full).settings))
    assert "search_queue_pkey" in plan, plan
    assert_indexed(plan)


# Migrations


def test_what_an_older_schema_has_pinned_is_found_after_its_upgrade(place: str) -> None:
    async def check() -> None:
        async with hansard.connect(url_of(place)) as store:
            messages = [
                hansard.Message("user", "a", pinned=True),
                hansard.Message("user", "b", metadata={"pinned": True, "odd": "\0"}),
                hansard.Message("user", "c", pinned=True, metadata={"text": '"pinned":true \0 \\u0000'}),
                hansard.Message("user", "d"),
            ]
            await store.append("c", messages)
        async with raw() as connection:
            await connection.execute(f"ALTER TABLE {place}.messages DROP COLUMN pinned")
            await connection.execute(f"DELETE FROM {place}.migrations WHERE name = '0002_pinned'")
        with pytest.raises(hansard.FormatMismatch, match="hansard upgrade"):
            await hansard.connect(url_of(place))
        await prepare(place, upgrade=True)
        async with hansard.connect(url_of(place)) as store:
            assert [message.text for message in await store.get_messages("c", pinned=True)] == ["a", "c"]
            assert [message.text for message in await store.get_messages("c", pinned=False)] == ["b", "d"]

    play(check)


def options_of(place: str) -> Any:
    return parse(Url(url_of(place)))


async def prepare(place: str, *, upgrade: bool) -> None:
    from hansard.backends.postgres.hosts import direct_hosts

    options = options_of(place)
    link = await direct_hosts(options).connect({})
    try:
        await schema.prepare(link, options, upgrade=upgrade)
    finally:
        await link.close()


LATER = schema.PostgresMigration("0099_later", "-- additive\nCREATE TABLE hansard.later (x bigint);\n")


def test_an_older_schema_waits_for_upgrade(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        await make(place)
        known = schema.migrations()
        monkeypatch.setattr(schema, "migrations", lambda: [*known, LATER])
        with pytest.raises(hansard.FormatMismatch, match="hansard upgrade"):
            await prepare(place, upgrade=False)
        await prepare(place, upgrade=True)
        async with raw() as connection:
            names = [row[0] for row in await connection.fetch(f"SELECT name FROM {place}.migrations ORDER BY name")]
            assert names == [migration.name for migration in [*known, LATER]]
            assert await connection.fetchval("SELECT to_regclass($1)", f"{place}.later") is not None

    play(check)


def test_older_code_goes_on_beside_an_additive_migration(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with hansard.connect(url_of(place)) as store:
            await store.append_message("c", "user", "before")
            with monkeypatch.context() as newer:
                known = schema.migrations()
                newer.setattr(schema, "migrations", lambda: [*known, LATER])
                await prepare(place, upgrade=True)
            await store.append_message("c", "user", "during")
        async with hansard.connect(url_of(place)) as again:
            assert [message.text for message in await again.get_messages("c")] == ["before", "during"]

    play(check)


def test_a_newer_schema_is_refused(place: str) -> None:
    async def check() -> None:
        await make(place)
        async with raw() as connection:
            await connection.execute(f"INSERT INTO {place}.migrations VALUES ('9999_future', 'x', 0, false)")
        with pytest.raises(hansard.FormatMismatch, match="newer version") as caught:
            await hansard.connect(url_of(place))
        assert caught.value.found == "9999_future"

    play(check)


def test_a_migration_that_fails_changes_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        await make(place)
        known = schema.migrations()
        twice = "CREATE TABLE hansard.half (x bigint); CREATE TABLE hansard.half (x bigint);"
        monkeypatch.setattr(schema, "migrations", lambda: [*known, schema.PostgresMigration("0099_broken", twice)])
        with pytest.raises(asyncpg.DuplicateTableError):
            await prepare(place, upgrade=True)
        async with raw() as connection:
            assert await connection.fetchval("SELECT to_regclass($1)", f"{place}.half") is None

    play(check)


def test_a_migration_that_was_changed_is_noticed(place: str) -> None:
    async def check() -> None:
        await make(place)
        async with raw() as connection:
            await connection.execute(f"UPDATE {place}.migrations SET checksum = 'x'")
        with pytest.raises(hansard.Corrupt, match="another checksum than expected"):
            await hansard.connect(url_of(place))

    play(check)


def test_processes_may_make_a_store_at_the_same_moment(place: str) -> None:
    script = (
        "import sys, hansard.sync\n"
        f"with hansard.sync.connect({url_of(place)!r}) as store:\n"
        "    store.append_message('c', 'user', sys.argv[1])\n"
    )
    starts = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(5)]
    assert [start.wait(60) for start in starts] == [0] * 5
    with hansard.sync.connect(url_of(place)) as store:
        assert sorted(message.text for message in store.get_messages("c")) == [str(number) for number in range(5)]


def test_a_foreign_schema_is_refused_and_left_alone(place: str) -> None:
    async def check() -> None:
        async with raw() as connection:
            await connection.execute(f"CREATE SCHEMA {place}; CREATE TABLE {place}.customers (id bigint)")
            with pytest.raises(hansard.FormatMismatch, match="another program"):
                await hansard.connect(url_of(place))
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", place)
            assert [row[0] for row in tables] == ["customers"]

    play(check)


def test_a_schema_with_an_odd_name(place: str) -> None:
    async def check() -> None:
        odd = f'{place} "hansard.x"'
        try:
            async with hansard.connect(f"{postgres.url()}&schema={odd.replace(' ', '%20')}") as store:
                await store.append_message("c", "user", "hello")
                assert (await store.get_messages("c"))[0].text == "hello"
                assert await store.check() == []
        finally:
            quoted = odd.replace('"', '""')
            await asyncio.to_thread(postgres.run, postgres.sql(f'DROP SCHEMA IF EXISTS "{quoted}" CASCADE'))

    play(check)
