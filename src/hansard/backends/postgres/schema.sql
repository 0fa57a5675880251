-- The whole schema, to read. Stores are built by migrations/; a test proves that both are the same.

-- One row a conversation, with its counters. `seq` is the last one given, `line` the last line that a branch was given,
-- `largest` the size of its largest body ever. Every write gives it a new random `stamp`: what a process knows of a
-- conversation holds while the stamp is the same. Room is left on the pages for rows that change.
CREATE TABLE hansard.conversations (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    agent_id text COLLATE "C",
    audit_id text COLLATE "C",
    title text COLLATE "C",
    metadata text COLLATE "C",
    summary text COLLATE "C",
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    last_message_at bigint,
    active_at bigint NOT NULL,
    message_count bigint NOT NULL,
    version bigint NOT NULL,
    branch text COLLATE "C" NOT NULL,
    expires_at bigint,
    archived_at bigint,
    seq bigint NOT NULL,
    buried boolean NOT NULL,
    largest bigint NOT NULL,
    line bigint NOT NULL,
    stamp bigint NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 85);

CREATE INDEX conversations_by_activity ON hansard.conversations (tenant, active_at, id);
CREATE INDEX conversations_by_update ON hansard.conversations (tenant, updated_at, id);
CREATE INDEX conversations_by_user_activity ON hansard.conversations (tenant, user_id, active_at, id)
    WHERE user_id IS NOT NULL;
CREATE INDEX conversations_by_user_update ON hansard.conversations (tenant, user_id, updated_at, id)
    WHERE user_id IS NOT NULL;
CREATE INDEX conversations_by_agent_activity ON hansard.conversations (tenant, agent_id, active_at, id)
    WHERE agent_id IS NOT NULL;
CREATE INDEX conversations_by_agent_update ON hansard.conversations (tenant, agent_id, updated_at, id)
    WHERE agent_id IS NOT NULL;
CREATE INDEX conversations_archived ON hansard.conversations (tenant, active_at, id) WHERE archived_at IS NOT NULL;
CREATE INDEX conversations_archived_by_update ON hansard.conversations (tenant, updated_at, id)
    WHERE archived_at IS NOT NULL;
CREATE INDEX conversations_by_expiry ON hansard.conversations (expires_at) WHERE expires_at IS NOT NULL;

-- A branch owns a line of its conversation, never reused, and stores the flattened path of the lines that it reads
-- before it: `lines`, oldest first, and `uptos`, up to which seq. `count` is NULL while the branch is alone: then it is
-- the conversation's.
CREATE TABLE hansard.branches (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    lines bigint[] NOT NULL,
    uptos bigint[] NOT NULL,
    count bigint,
    parent text COLLATE "C",
    from_seq bigint,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, conversation, id)
);

-- One row a message. The tail of a line is one run of the primary key. `format` is NULL for text; `size` is that of the
-- content as its reader gets it, in bytes; `extra` is JSON of what few messages have; `pinned` says again what `extra`
-- says, for the index.
CREATE TABLE hansard.messages (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    format text COLLATE "C",
    body text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    created_at bigint NOT NULL,
    participant text COLLATE "C",
    participant_kind text COLLATE "C",
    scope text COLLATE "C",
    extra text COLLATE "C",
    pinned boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, conversation, line, seq)
);

CREATE UNIQUE INDEX messages_by_id ON hansard.messages (tenant, conversation, id);
CREATE INDEX messages_by_user ON hansard.messages (tenant, left(participant, 256)) WHERE participant_kind = 'user';
CREATE INDEX messages_pinned ON hansard.messages (tenant, conversation, line, seq) WHERE pinned;

CREATE TABLE hansard.summaries (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    branch text COLLATE "C" NOT NULL,
    from_seq bigint NOT NULL,
    to_seq bigint NOT NULL,
    text text COLLATE "C" NOT NULL,
    model text COLLATE "C",
    prompt_id text COLLATE "C",
    token_count bigint,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, conversation, number)
);

-- `value` holds JSON, `data` bytes: one of them. `owner` is '' outside a user's view; namespaces are packed (see codec).
CREATE TABLE hansard.records (
    tenant text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    namespace bytea NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C",
    data bytea,
    revision bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    conversation text COLLATE "C",
    PRIMARY KEY (tenant, owner, namespace, key)
);

CREATE INDEX records_by_conversation ON hansard.records (tenant, conversation) WHERE conversation IS NOT NULL;
CREATE INDEX records_by_expiry ON hansard.records (expires_at) WHERE expires_at IS NOT NULL;

-- Bytes, once a tenant. A blob that a message refers to has a row in blob_uses; others are kept until `keep_until`.
CREATE TABLE hansard.blobs (
    tenant text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    keep_until bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, sha256)
);

CREATE INDEX blobs_by_time ON hansard.blobs (keep_until);

CREATE TABLE hansard.blob_uses (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, conversation, line, seq, sha256)
);

CREATE INDEX blob_uses_by_blob ON hansard.blob_uses (tenant, sha256);

-- Hashes of what was deleted, so that a replay cannot bring it back.
CREATE TABLE hansard.tombstones (
    tenant text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (tenant, digest)
);

CREATE INDEX tombstones_by_time ON hansard.tombstones (at);

-- Tokens and cost; '' stands for none in the key.
CREATE TABLE hansard.usage (
    tenant text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    messages bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost double precision NOT NULL,
    PRIMARY KEY (tenant, day, user_id, agent_id, model)
);

-- The search index. `terms` are those of `hansard.analysis`: words with their places, other ways to write them at places
-- of their own, and, behind U+0002, whom the message belongs to. `loose` says that they tell less than the message:
-- whoever finds it has to look at the message itself. `words` is the length of the text. It is filled behind the appends,
-- from `search_queue`.
CREATE TABLE hansard.search (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    created_at bigint NOT NULL,
    loose boolean NOT NULL,
    terms tsvector NOT NULL,
    words integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, conversation, line, seq)
);

CREATE INDEX search_by_time ON hansard.search (tenant, created_at, seq, conversation);
CREATE INDEX search_by_terms ON hansard.search USING gin (terms) WITH (fastupdate = on, gin_pending_list_limit = 512);

-- The messages that are not in the index yet. A message is in one of the two, never in both.
CREATE TABLE hansard.search_queue (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (tenant, conversation, line, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);

-- One row: the version of the analysis that the index was built by, and the one by which it is being filled.
CREATE TABLE hansard.search_state (
    version bigint NOT NULL,
    filling bigint NOT NULL
);

-- The second wall, which stands only where row-level security is switched on (`rls=true`): a transaction sees the tenant
-- that it names, and all of them only when it says so.
CREATE FUNCTION hansard.is_open(tenant text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS
    $$ SELECT tenant = current_setting('hansard_wall.tenant', true) OR current_setting('hansard_wall.open', true) = 'on' $$;

CREATE POLICY wall ON hansard.conversations USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.branches USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.messages USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.summaries USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.records USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.blobs USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.blob_uses USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.tombstones USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.usage USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.search USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.search_queue USING (hansard.is_open(tenant));

-- The ledger: which migrations this store has had. Older code goes on working beside an `additive` one.
CREATE TABLE hansard.migrations (
    name text COLLATE "C" PRIMARY KEY,
    checksum text NOT NULL,
    applied_at bigint NOT NULL,
    additive boolean NOT NULL
);
