-- The index of a tenant: the content of its journals in a form for queries. It can be rebuilt from them.

-- One row for each journal. inode, size, mtime and tail say which file was read, and how far; lines counts its lines.
-- `head` is JSON of the conversation and its branches, `rest` of its summaries and owners of records, `usage` of its
-- usage rows. A conversation that was deleted, or has no complete line yet, is not `live`.
CREATE TABLE conversations (
    pk INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    folder TEXT NOT NULL,
    inode INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    tail BLOB NOT NULL,
    id TEXT NOT NULL,
    journal TEXT NOT NULL,
    live INTEGER NOT NULL,
    user_id TEXT,
    agent_id TEXT,
    active_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    head BLOB NOT NULL,
    rest BLOB,
    usage BLOB
);

CREATE INDEX by_activity ON conversations (active_at, id) WHERE live;
CREATE INDEX by_user_activity ON conversations (user_id, active_at, id) WHERE live AND user_id IS NOT NULL;
CREATE INDEX by_agent_activity ON conversations (agent_id, active_at, id) WHERE live AND agent_id IS NOT NULL;

-- Appends keep updated_at and active_at the same, so most conversations have no entry here. A listing by update merges
-- these with those by activity.
CREATE INDEX by_update ON conversations (updated_at, id) WHERE live AND updated_at <> active_at;
CREATE INDEX by_user_update ON conversations (user_id, updated_at, id)
    WHERE live AND updated_at <> active_at AND user_id IS NOT NULL;
CREATE INDEX by_agent_update ON conversations (agent_id, updated_at, id)
    WHERE live AND updated_at <> active_at AND agent_id IS NOT NULL;

CREATE INDEX overdue ON conversations (expires_at) WHERE expires_at IS NOT NULL OR NOT live;
CREATE INDEX with_usage ON conversations (pk) WHERE usage IS NOT NULL;

-- One row for each message: its position in the journal, and its checksum there. `user_id` is the id of a participant
-- of kind user; `n` numbers messages in the order in which they were added to this index.
CREATE TABLE messages (
    conversation INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    created INTEGER NOT NULL,
    size INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    role TEXT NOT NULL,
    participant TEXT,
    user_id TEXT,
    pinned INTEGER,
    n INTEGER NOT NULL,
    PRIMARY KEY (conversation, segment, seq)
) WITHOUT ROWID;

-- Both are unique without being declared so, which would cost each new message two more searches.
CREATE INDEX messages_by_number ON messages (n);
CREATE INDEX messages_by_id ON messages (conversation, id);
CREATE INDEX messages_pinned ON messages (conversation, segment, seq) WHERE pinned;
CREATE INDEX messages_by_user ON messages (user_id) WHERE user_id IS NOT NULL;

-- Which conversations refer to a blob, and by which message.
CREATE TABLE holders (
    digest TEXT NOT NULL,
    n INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    PRIMARY KEY (digest, n)
) WITHOUT ROWID;

CREATE INDEX holders_by_conversation ON holders (conversation, n);

-- One row. Messages up to the number `indexed` are in `search`; `version` is that of the analysis; `unclean` is 1 while
-- old parts of `search` may still hold deleted terms.
CREATE TABLE search_state (
    one INTEGER PRIMARY KEY,
    indexed INTEGER NOT NULL,
    version INTEGER NOT NULL,
    unclean INTEGER NOT NULL
);
INSERT INTO search_state VALUES (1, 0, 0, 0);

-- `length` is the number of words.
CREATE VIRTUAL TABLE search USING fts5 (
    words, more, owner, length UNINDEXED, columnsize = 0, tokenize = "ascii tokenchars '#%+$&@'"
);
