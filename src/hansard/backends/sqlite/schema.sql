-- The whole schema, to read. Stores are built by migrations/; a test proves that both are the same.

-- One row a conversation, with its counters. `seq` is the last one given, `largest` the size of its largest body ever.
CREATE TABLE conversations (
    pk INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    user_id TEXT,
    agent_id TEXT,
    audit_id TEXT,
    title TEXT,
    metadata TEXT,
    summary TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_message_at INTEGER,
    active_at INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    version INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    branch TEXT NOT NULL,
    expires_at INTEGER,
    archived_at INTEGER,
    buried INTEGER NOT NULL,
    largest INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);
CREATE INDEX conversations_by_activity ON conversations (tenant, active_at, id);
CREATE INDEX conversations_by_user_activity ON conversations (tenant, user_id, active_at, id) WHERE user_id IS NOT NULL;
CREATE INDEX conversations_by_agent_activity ON conversations (tenant, agent_id, active_at, id) WHERE agent_id IS NOT NULL;

-- Appends keep updated_at and active_at the same, so that most conversations need no entry here, and most appends touch
-- one index for each way to list. A listing by update merges these with those by activity.
CREATE INDEX conversations_by_update ON conversations (tenant, updated_at, id) WHERE updated_at <> active_at;
CREATE INDEX conversations_by_user_update ON conversations (tenant, user_id, updated_at, id)
    WHERE updated_at <> active_at AND user_id IS NOT NULL;
CREATE INDEX conversations_by_agent_update ON conversations (tenant, agent_id, updated_at, id)
    WHERE updated_at <> active_at AND agent_id IS NOT NULL;

-- Few are archived, among many that are not.
CREATE INDEX conversations_archived ON conversations (tenant, active_at, id) WHERE archived_at IS NOT NULL;
CREATE INDEX conversations_archived_by_update ON conversations (tenant, updated_at, id) WHERE archived_at IS NOT NULL;

-- What has expired, and whether a tenant has conversations that expire.
CREATE INDEX conversations_by_expiry ON conversations (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX conversations_that_expire ON conversations (tenant) WHERE expires_at IS NOT NULL;

-- A branch owns an integer line, never reused, and stores the flattened path of the lines that it reads before it:
-- JSON [[line, up to which seq], …]. `count` is NULL while the branch is alone: then it is the conversation's.
CREATE TABLE branches (
    line INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    id TEXT NOT NULL,
    path TEXT,
    count INTEGER,
    parent TEXT,
    from_seq INTEGER,
    created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX branches_by_id ON branches (conversation, id);
CREATE INDEX branches_forked ON branches (conversation) WHERE count IS NOT NULL OR path IS NOT NULL;

-- One row a message. key = line << 30 | seq, so that the tail of a line is one run of pages.
-- `format` is NULL for text; `extra` is JSON of what few messages have; `pinned` is 1 or NULL, and says again what
-- `extra` says, for the index.
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    format TEXT,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    participant TEXT,
    scope TEXT,
    extra TEXT,
    pinned INTEGER
) STRICT;

CREATE UNIQUE INDEX messages_by_id ON messages (conversation, id);
-- What an erasure of a user looks for in the conversations of others.
CREATE INDEX messages_by_participant ON messages (participant) WHERE participant IS NOT NULL;
CREATE INDEX messages_pinned ON messages (key) WHERE pinned;

CREATE TABLE summaries (
    pk INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    branch TEXT NOT NULL,
    from_seq INTEGER NOT NULL,
    to_seq INTEGER NOT NULL,
    text TEXT NOT NULL,
    model TEXT,
    prompt_id TEXT,
    token_count INTEGER,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX summaries_by_conversation ON summaries (conversation, pk);

-- `value` is TEXT for JSON and BLOB for bytes; `owner` is '' outside a user's view; namespaces are packed (see codec).
CREATE TABLE records (
    pk INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    namespace BLOB NOT NULL,
    key TEXT NOT NULL,
    value ANY NOT NULL,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    conversation INTEGER
) STRICT;

CREATE UNIQUE INDEX records_by_key ON records (tenant, owner, namespace, key);
CREATE INDEX records_by_conversation ON records (conversation) WHERE conversation IS NOT NULL;
CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

-- Bytes, once a tenant. A blob that a message refers to has a row in blob_uses; others are kept until `keep_until`.
CREATE TABLE blobs (
    pk INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    keep_until INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX blobs_by_hash ON blobs (tenant, sha256);

CREATE TABLE blob_uses (
    message INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    PRIMARY KEY (message, blob)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_uses_by_blob ON blob_uses (blob);

-- Hashes of what was deleted, so that a replay cannot bring it back.
CREATE TABLE tombstones (
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX tombstones_by_time ON tombstones (at);

-- Tokens and cost; '' stands for none in the key.
CREATE TABLE usage (
    tenant TEXT NOT NULL,
    day TEXT NOT NULL,
    user_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    model TEXT NOT NULL,
    messages INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (tenant, day, user_id, agent_id, model)
) STRICT, WITHOUT ROWID;

-- The search index. Every message gets a row in search_rows when it arrives, and loses it when it is indexed; the last
-- row stays, so that no number is used twice. An entry is `tenant << 45 | seconds << 12 | n`, so that a tenant is a range
-- and the newest have the highest numbers, whenever they arrive.
-- `search` keeps no text: only terms (see hansard.analysis) and, in `owner`, the conversation and the user.
CREATE TABLE search_rows (
    n INTEGER PRIMARY KEY,
    message INTEGER NOT NULL
) STRICT;

-- The message of an entry, and its length.
CREATE TABLE search_entries (
    entry INTEGER PRIMARY KEY,
    message INTEGER NOT NULL,
    words INTEGER NOT NULL
) STRICT;

-- Where in `search` a message is, once it is.
CREATE TABLE search_places (
    message INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL
) STRICT;

CREATE TABLE search_tenants (
    pk INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL UNIQUE
) STRICT;

-- One row. `version` of the analysis; `latest` is how far behind its time the slot of an entry may be, and `lag` how
-- much newer than a higher entry a lower one may be; `unclean` is 1 while deleted terms may still lie in old segments of `search`.
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

-- The ledger: which migrations this file has had.
CREATE TABLE migrations (
    name TEXT PRIMARY KEY,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
