"""What a URL says: where the server is, and what was mistyped."""

from __future__ import annotations

import pytest

from hansard import sync
from hansard.backends.redis.options import RedisOptions, options_of
from hansard.errors import ValidationError
from hansard.urls import Url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", RedisOptions(addresses=(("localhost", 6379),))),
        ("redis://h:1/2", RedisOptions(addresses=(("h", 1),), db=2)),
        ("redis://:p%40ss@h", RedisOptions(addresses=(("h", 6379),), password="p@ss")),
        ("redis://me:secret@[::1]:7", RedisOptions(addresses=(("::1", 7),), username="me", password="secret")),
        ("redis+unix:///run/r.sock?db=3", RedisOptions(socket="/run/r.sock", db=3)),
        ("redis+cluster://a:1,b", RedisOptions(addresses=(("a", 1), ("b", 6379)), cluster=True)),
        (
            "redis://h?prefix=x:y&timeout=5&wait_replicas=1&wait_timeout=20",
            RedisOptions(addresses=(("h", 6379),), prefix="x:y", timeout=5, wait_replicas=1, wait_timeout=20),
        ),
    ],
)
def test_a_url_is_read(url: str, expected: RedisOptions) -> None:
    assert options_of(Url(url)) == expected


def test_tls() -> None:
    tls = options_of(Url("rediss://h?tls_ca=/ca.pem")).tls
    assert tls == {"ssl_ca_certs": "/ca.pem", "ssl_certfile": None, "ssl_keyfile": None}
    assert options_of(Url("redis+cluster://h?tls_ca=/ca.pem")).tls == tls
    assert options_of(Url("redis://h")).tls is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h?wait_replica=1", "did you mean 'wait_replicas'"),
        ("redis://h?wait_replicas=0", "a whole number of at least 1"),
        ("redis://h?timeout=soon", "a whole number of at least 1"),
        ("redis://h:port", "is not a host and a port"),
        ("redis://h:0", "is not a host and a port"),
        ("redis://h/db", "is not the number of a database"),
        ("redis://h?prefix={x}", "letters, digits"),
        ("redis+cluster://h/1", "only database 0"),
        ("redis+unix://", "names a socket"),
        ("redis+unix://host/x", "names a socket"),
    ],
)
def test_what_is_wrong_is_named(url: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        sync.connect(url)


def test_the_password_stays_out_of_errors() -> None:
    assert "secret" not in options_of(Url("redis://:secret@h")).where
