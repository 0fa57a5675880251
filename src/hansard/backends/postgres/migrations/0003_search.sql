CREATE TABLE hansard.search (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    created_at bigint NOT NULL,
    loose boolean NOT NULL,
    terms tsvector NOT NULL,
    PRIMARY KEY (tenant, conversation, line, seq)
);

CREATE INDEX search_by_time ON hansard.search (tenant, created_at, seq, conversation);
CREATE INDEX search_by_terms ON hansard.search USING gin (terms) WITH (fastupdate = on, gin_pending_list_limit = 512);

CREATE TABLE hansard.search_queue (
    tenant text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (tenant, conversation, line, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE hansard.search_state (
    version bigint NOT NULL,
    filling bigint NOT NULL
);

CREATE POLICY wall ON hansard.search USING (hansard.is_open(tenant));
CREATE POLICY wall ON hansard.search_queue USING (hansard.is_open(tenant));

-- Where the second wall stands already, it stands around these, too.
DO $$ BEGIN
    IF (SELECT relrowsecurity FROM pg_class WHERE oid = 'hansard.conversations'::regclass) THEN
        ALTER TABLE hansard.search ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        ALTER TABLE hansard.search_queue ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
    END IF;
END $$;

-- All that is there waits to be indexed: that is done in passes, behind the upgrade. The lock waits for what was written
-- already, and is committed late.
LOCK TABLE hansard.messages IN SHARE MODE;
INSERT INTO hansard.search_state VALUES (0, 0);
INSERT INTO hansard.search_queue SELECT tenant, conversation, line, seq FROM hansard.messages;
