CREATE TABLE search_rows (
    n INTEGER PRIMARY KEY,
    message INTEGER NOT NULL
) STRICT;

CREATE TABLE search_places (
    message INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL
) STRICT;

CREATE TABLE search_tenants (
    pk INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE search_state (
    one INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    indexed INTEGER NOT NULL,
    latest INTEGER NOT NULL,
    lag INTEGER NOT NULL,
    unclean INTEGER NOT NULL
) STRICT;

CREATE VIRTUAL TABLE search USING fts5 (
    words, more, owner, content = '', columnsize = 0, tokenize = "ascii tokenchars '#%+$&@'"
);

INSERT INTO search_state VALUES (0, 1, 0, -9223372036854775807, 0, 0);
INSERT INTO search_rows (message) SELECT key FROM messages ORDER BY created_at, key;
