-- lock_conversation --
-- Locks a conversation for a writer, which reads the branches afterwards, with a newer snapshot.
SELECT id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at, last_message_at,
    message_count, version, branch, expires_at, archived_at, seq, buried, largest, line, stamp
FROM hansard.conversations WHERE tenant = $1 AND id = $2 FOR UPDATE;

-- find_conversation --
-- The same for a reader: without branches and without a lock.
SELECT id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at, last_message_at,
    message_count, version, branch, expires_at, archived_at
FROM hansard.conversations WHERE tenant = $1 AND id = $2;

-- find_branches --
-- The branches of a conversation, as JSON.
SELECT json_agg(json_build_array(id, line, lines, uptos, count, parent, from_seq, created_at))
FROM hansard.branches WHERE tenant = $1 AND conversation = $2;

-- find_heads --
-- Conversations with their branches, in one snapshot.
SELECT c.id, c.user_id, c.agent_id, c.audit_id, c.title, c.metadata, c.summary, c.created_at, c.updated_at,
    c.last_message_at, c.message_count, c.version, c.branch, c.expires_at, c.archived_at, c.seq, c.buried, c.largest,
    c.line, c.stamp,
    (SELECT json_agg(json_build_array(b.id, b.line, b.lines, b.uptos, b.count, b.parent, b.from_seq, b.created_at))
     FROM hansard.branches b WHERE b.tenant = c.tenant AND b.conversation = c.id) AS lanes
FROM hansard.conversations c WHERE c.tenant = $1 AND c.id = ANY($2::text[]);

-- append --
-- The appends of many callers to conversations that exist. Each conversation is saved, and its messages are inserted,
-- only if its stamp is the one that its writers read, and no tombstone stops them; locks are taken in the order of
-- ids. Returns the ids of the saved conversations.
WITH given AS (
    SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[],
        $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
    AS given (id, grave, known, stamp, user_id, updated_at, last_message_at, active_at, message_count, version, seq,
        largest)
), locked AS MATERIALIZED (
    SELECT c.id FROM hansard.conversations c JOIN given ON given.id = c.id AND given.known = c.stamp
    WHERE c.tenant = $1 AND (given.grave = ''
        OR NOT EXISTS (SELECT 1 FROM hansard.tombstones t WHERE t.tenant = $1 AND t.digest = given.grave))
    ORDER BY c.id FOR NO KEY UPDATE OF c
), saved AS (
    UPDATE hansard.conversations c SET stamp = given.stamp, user_id = given.user_id, updated_at = given.updated_at,
        last_message_at = given.last_message_at, active_at = given.active_at, message_count = given.message_count,
        version = given.version, seq = given.seq, largest = given.largest
    FROM given JOIN locked USING (id) WHERE c.tenant = $1 AND c.id = given.id
    RETURNING c.id
), inserted AS (
    INSERT INTO hansard.messages (tenant, conversation, line, seq, id, role, format, body, size, created_at, participant,
        participant_kind, scope, extra, pinned)
    SELECT $1, m.* FROM unnest($14::text[], $15::bigint[], $16::bigint[], $17::text[], $18::text[], $19::text[],
        $20::text[], $21::bigint[], $22::bigint[], $23::text[], $24::text[], $25::text[], $26::text[],
        $27::boolean[])
    AS m (conversation, line, seq, id, role, format, body, size, created_at, participant, participant_kind, scope, extra,
        pinned)
    WHERE m.conversation IN (SELECT id FROM saved)
    RETURNING conversation, line, seq
), noted AS (
    INSERT INTO hansard.search_queue (tenant, conversation, line, seq)
    SELECT $1, conversation, line, seq FROM inserted ON CONFLICT DO NOTHING
)
SELECT ARRAY(SELECT id FROM saved), pg_notify($28::text, $29::text);

-- append_one --
-- The same for one message without a given time. Returns no row when it was not saved.
WITH saved AS (
    UPDATE hansard.conversations SET stamp = $4, user_id = $5, updated_at = $6, last_message_at = $7, active_at = $8,
        message_count = $9, version = $10, seq = $11, largest = $12
    WHERE tenant = $1 AND id = $2 AND stamp = $3
    RETURNING id
), noted AS (
    INSERT INTO hansard.search_queue (tenant, conversation, line, seq)
    SELECT $1, saved.id, $13::bigint, $14::bigint FROM saved ON CONFLICT DO NOTHING
)
INSERT INTO hansard.messages (tenant, conversation, line, seq, id, role, format, body, size, created_at, participant,
    participant_kind, scope, extra, pinned)
SELECT $1, saved.id, $13::bigint, $14::bigint, $15::text, $16::text, $17::text, $18::text, $19::bigint, $20::bigint,
    $21::text, $22::text, $23::text, $24::text, $25::boolean
FROM saved
RETURNING pg_notify($26::text, $27::text);

-- begin --
-- The appends of many callers to new conversations. Returns the ids of those created; the others existed.
WITH made AS (
    INSERT INTO hansard.conversations (tenant, id, user_id, agent_id, audit_id, title, metadata, summary, created_at,
        updated_at, last_message_at, active_at, message_count, version, branch, expires_at, archived_at, seq, buried,
        largest, line, stamp)
    SELECT $1, g.id, g.user_id, g.agent_id, g.audit_id, g.title, g.metadata, NULL, g.created_at, g.updated_at,
        g.last_message_at, g.active_at, g.message_count, g.version, 'main', g.expires_at, NULL, g.seq, false, g.largest,
        1, g.stamp
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
        $16::bigint[], $17::bigint[])
    AS g (id, user_id, agent_id, audit_id, title, metadata, created_at, updated_at, last_message_at, active_at,
        message_count, version, expires_at, seq, largest, stamp)
    ORDER BY g.id
    ON CONFLICT DO NOTHING
    RETURNING id, created_at
), branched AS (
    INSERT INTO hansard.branches (tenant, conversation, id, line, lines, uptos, created_at)
    SELECT $1, id, 'main', 1, '{}', '{}', created_at FROM made
), inserted AS (
    INSERT INTO hansard.messages (tenant, conversation, line, seq, id, role, format, body, size, created_at, participant,
        participant_kind, scope, extra, pinned)
    SELECT $1, m.* FROM unnest($18::text[], $19::bigint[], $20::bigint[], $21::text[], $22::text[], $23::text[],
        $24::text[], $25::bigint[], $26::bigint[], $27::text[], $28::text[], $29::text[], $30::text[],
        $31::boolean[])
    AS m (conversation, line, seq, id, role, format, body, size, created_at, participant, participant_kind, scope, extra,
        pinned)
    WHERE m.conversation IN (SELECT id FROM made)
    RETURNING conversation, line, seq
), noted AS (
    INSERT INTO hansard.search_queue (tenant, conversation, line, seq)
    SELECT $1, conversation, line, seq FROM inserted ON CONFLICT DO NOTHING
)
SELECT ARRAY(SELECT id FROM made), pg_notify($32::text, $33::text);

-- insert_conversation --
-- Inserts a conversation. Returns no row when the id is in use.
INSERT INTO hansard.conversations (tenant, id, user_id, agent_id, audit_id, title, metadata, summary, created_at,
    updated_at, last_message_at, active_at, message_count, version, branch, expires_at, archived_at, seq, buried,
    largest, line, stamp)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
ON CONFLICT DO NOTHING;

-- save_conversation --
-- Saves all columns of a conversation that can change.
UPDATE hansard.conversations SET user_id = $3, agent_id = $4, audit_id = $5, title = $6, metadata = $7, summary = $8,
    created_at = $9, updated_at = $10, last_message_at = $11, active_at = $12, message_count = $13, version = $14,
    branch = $15, expires_at = $16, archived_at = $17, seq = $18, buried = $19, largest = $20, line = $21, stamp = $22
WHERE tenant = $1 AND id = $2;

-- save_branch --
-- Inserts or updates a branch.
INSERT INTO hansard.branches (tenant, conversation, id, line, lines, uptos, count, parent, from_seq, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant, conversation, id) DO UPDATE
SET line = excluded.line, lines = excluded.lines, uptos = excluded.uptos, count = excluded.count,
    parent = excluded.parent, from_seq = excluded.from_seq, created_at = excluded.created_at;

-- save_counts --
-- Saves the counts of branches after appends.
UPDATE hansard.branches b SET count = given.count
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS given (conversation, id, count)
WHERE b.tenant = $1 AND b.conversation = given.conversation AND b.id = given.id;

-- delete_branch --
-- One branch.
DELETE FROM hansard.branches WHERE tenant = $1 AND conversation = $2 AND id = $3;

-- insert_messages --
-- Messages of one conversation.
WITH noted AS (
    INSERT INTO hansard.search_queue (tenant, conversation, line, seq)
    SELECT $1, n.* FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS n (conversation, line, seq)
    ON CONFLICT DO NOTHING
)
INSERT INTO hansard.messages (tenant, conversation, line, seq, id, role, format, body, size, created_at, participant,
    participant_kind, scope, extra, pinned)
SELECT $1, m.* FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::boolean[])
AS m (conversation, line, seq, id, role, format, body, size, created_at, participant, participant_kind, scope, extra,
    pinned);

-- find_messages --
-- Existing messages by id. The OFFSET makes the planner use one index lookup per id: without statistics, a join or
-- `= ANY` may compare each message with each of many ids.
SELECT m.* FROM unnest($3::text[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT line, seq, id, role, format, body, created_at, extra FROM hansard.messages
    WHERE tenant = $1 AND conversation = $2 AND id = wanted.id OFFSET 0
) AS m;

-- read_messages --
-- The same for a reader, if it may see the conversation.
SELECT m.* FROM hansard.conversations c, unnest($3::text[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT line, seq, id, role, format, body, created_at, extra FROM hansard.messages
    WHERE tenant = $1 AND conversation = $2 AND id = wanted.id OFFSET 0
) AS m
WHERE c.tenant = $1 AND c.id = $2 AND (c.expires_at IS NULL OR c.expires_at > $4)
    AND ($5::text IS NULL OR c.user_id = $5);

-- save_message --
-- Saves the columns of a message that an update can change.
UPDATE hansard.messages SET format = $5, body = $6, size = $7, extra = $8, pinned = $9
WHERE tenant = $1 AND conversation = $2 AND line = $3 AND seq = $4;

-- save_extra --
-- The same without the content.
UPDATE hansard.messages SET extra = $5, pinned = $6
WHERE tenant = $1 AND conversation = $2 AND line = $3 AND seq = $4;

-- read_runs --
-- The messages of runs: for each segment, those after one seq up to another.
SELECT m.line, m.seq, m.id, m.role, m.format, m.body, m.created_at, m.extra
FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY AS run (line, after, upto, place)
JOIN hansard.messages m ON m.tenant = $1 AND m.conversation = $2 AND m.line = run.line AND m.seq > run.after
    AND m.seq <= run.upto
ORDER BY run.place, m.seq;

-- newest_of_runs --
-- The newest messages of runs, up to a limit.
SELECT * FROM (
    SELECT m.*, run.place FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
        AS run (line, after, upto, place)
    CROSS JOIN LATERAL (
        SELECT line, seq, id, role, format, body, created_at, extra FROM hansard.messages
        WHERE tenant = $1 AND conversation = $2 AND line = run.line AND seq > run.after AND seq <= run.upto
        ORDER BY seq DESC LIMIT $6
    ) AS m
    ORDER BY run.place DESC, m.seq DESC LIMIT $6
) AS newest
ORDER BY place, seq;

-- count_runs --
-- The number of messages in each run, with their first and last seq.
SELECT count(m.seq), coalesce(min(m.seq), 0), coalesce(max(m.seq), 0)
FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY AS run (line, after, upto, place)
LEFT JOIN hansard.messages m ON m.tenant = $1 AND m.conversation = $2 AND m.line = run.line AND m.seq > run.after
    AND m.seq <= run.upto
GROUP BY run.place ORDER BY run.place;

-- read_segments --
-- Messages of all segments in the order of seq. Once the bodies exceed a size, later rows have no body.
SELECT line, seq, id, role, format, CASE WHEN sum(size) OVER (ORDER BY seq) - size < $6 THEN body END, created_at, extra
FROM (
    SELECT m.* FROM unnest($3::bigint[]) AS part (line)
    CROSS JOIN LATERAL (
        SELECT line, seq, id, role, format, body, created_at, extra, size FROM hansard.messages
        WHERE tenant = $1 AND conversation = $2 AND line = part.line AND seq > $4
        ORDER BY seq LIMIT $5
    ) AS m
    ORDER BY m.seq LIMIT $5
) AS found
ORDER BY seq;

-- last_time_without --
-- The time of the newest message that remains without these ids and runs. On each segment that a branch reads, it scans
-- backwards over the removed messages and one more.
SELECT m.created_at FROM (
    SELECT DISTINCT unnest(b.lines || b.line) AS line FROM hansard.branches b WHERE b.tenant = $1 AND b.conversation = $2
) AS part
CROSS JOIN LATERAL (
    SELECT seq, created_at FROM hansard.messages
    WHERE tenant = $1 AND conversation = $2 AND line = part.line AND id NOT IN (SELECT unnest($3::text[]))
        AND NOT EXISTS (SELECT 1 FROM unnest($4::bigint[], $5::bigint[], $6::bigint[]) AS run (line, after, upto)
            WHERE run.line = part.line AND seq > run.after AND seq <= run.upto)
    ORDER BY seq DESC LIMIT 1
) AS m
ORDER BY m.seq DESC LIMIT 1;

-- remove_messages --
-- Deletes messages by segment and seq, with their references to blobs and their search data. Returns the number of
-- messages, and the blobs.
WITH released AS (
    DELETE FROM hansard.blob_uses u USING unnest($3::bigint[], $4::bigint[]) AS gone (line, seq)
    WHERE u.tenant = $1 AND u.conversation = $2 AND u.line = gone.line AND u.seq = gone.seq
    RETURNING u.sha256
), indexed AS (
    DELETE FROM hansard.search s USING unnest($3::bigint[], $4::bigint[]) AS gone (line, seq)
    WHERE s.tenant = $1 AND s.conversation = $2 AND s.line = gone.line AND s.seq = gone.seq
), noted AS (
    DELETE FROM hansard.search_queue q USING unnest($3::bigint[], $4::bigint[]) AS gone (line, seq)
    WHERE q.tenant = $1 AND q.conversation = $2 AND q.line = gone.line AND q.seq = gone.seq
), removed AS (
    DELETE FROM hansard.messages m USING unnest($3::bigint[], $4::bigint[]) AS gone (line, seq)
    WHERE m.tenant = $1 AND m.conversation = $2 AND m.line = gone.line AND m.seq = gone.seq
    RETURNING 1
)
SELECT (SELECT count(*) FROM removed), ARRAY(SELECT sha256 FROM released);

-- remove_runs --
-- The same for whole runs.
WITH released AS (
    DELETE FROM hansard.blob_uses u USING unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS run (line, after, upto)
    WHERE u.tenant = $1 AND u.conversation = $2 AND u.line = run.line AND u.seq > run.after AND u.seq <= run.upto
    RETURNING u.sha256
), indexed AS (
    DELETE FROM hansard.search s USING unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS run (line, after, upto)
    WHERE s.tenant = $1 AND s.conversation = $2 AND s.line = run.line AND s.seq > run.after AND s.seq <= run.upto
), noted AS (
    DELETE FROM hansard.search_queue q USING unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS run (line, after, upto)
    WHERE q.tenant = $1 AND q.conversation = $2 AND q.line = run.line AND q.seq > run.after AND q.seq <= run.upto
), removed AS (
    DELETE FROM hansard.messages m USING unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS run (line, after, upto)
    WHERE m.tenant = $1 AND m.conversation = $2 AND m.line = run.line AND m.seq > run.after AND m.seq <= run.upto
    RETURNING 1
)
SELECT (SELECT count(*) FROM removed), ARRAY(SELECT sha256 FROM released);

-- wipe_messages --
-- Deletes all messages and summaries of a conversation, with their references to blobs and their search data. Returns
-- the numbers of messages, summaries and records, and the blobs.
WITH released AS (DELETE FROM hansard.blob_uses WHERE tenant = $1 AND conversation = $2 RETURNING sha256),
    indexed AS (DELETE FROM hansard.search WHERE tenant = $1 AND conversation = $2),
    noted AS (DELETE FROM hansard.search_queue WHERE tenant = $1 AND conversation = $2),
    forgotten AS (DELETE FROM hansard.summaries WHERE tenant = $1 AND conversation = $2 RETURNING 1),
    removed AS (DELETE FROM hansard.messages WHERE tenant = $1 AND conversation = $2 RETURNING 1)
SELECT (SELECT count(*) FROM removed), (SELECT count(*) FROM forgotten), 0::bigint, ARRAY(SELECT sha256 FROM released);

-- wipe_everything --
-- The same, including the conversation, its branches and its records.
WITH released AS (DELETE FROM hansard.blob_uses WHERE tenant = $1 AND conversation = $2 RETURNING sha256),
    indexed AS (DELETE FROM hansard.search WHERE tenant = $1 AND conversation = $2),
    noted AS (DELETE FROM hansard.search_queue WHERE tenant = $1 AND conversation = $2),
    forgotten AS (DELETE FROM hansard.summaries WHERE tenant = $1 AND conversation = $2 RETURNING 1),
    parted AS (DELETE FROM hansard.branches WHERE tenant = $1 AND conversation = $2),
    owned AS (DELETE FROM hansard.records WHERE tenant = $1 AND conversation = $2 RETURNING 1),
    closed AS (DELETE FROM hansard.conversations WHERE tenant = $1 AND id = $2),
    removed AS (DELETE FROM hansard.messages WHERE tenant = $1 AND conversation = $2 RETURNING 1)
SELECT (SELECT count(*) FROM removed), (SELECT count(*) FROM forgotten), (SELECT count(*) FROM owned),
    ARRAY(SELECT sha256 FROM released);

-- insert_summary --
-- Adds a summary as the newest of its conversation.
INSERT INTO hansard.summaries (tenant, conversation, number, branch, from_seq, to_seq, text, model, prompt_id,
    token_count, created_at)
SELECT $1, $2, 1 + coalesce(max(number), 0), $3, $4, $5, $6, $7, $8, $9, $10
FROM hansard.summaries WHERE tenant = $1 AND conversation = $2;

-- find_summaries --
-- The summaries of a conversation, oldest first.
SELECT branch, from_seq, to_seq, text, model, prompt_id, token_count, created_at, number FROM hansard.summaries
WHERE tenant = $1 AND conversation = $2 ORDER BY number;

-- delete_summaries --
-- Some summaries of a conversation.
DELETE FROM hansard.summaries WHERE tenant = $1 AND conversation = $2 AND number = ANY($3::bigint[]);

-- find_records --
-- Records by key, each with its conversation's owner and expiry.
SELECT r.namespace, r.key, r.value, r.data, r.revision, r.created_at, r.updated_at, r.expires_at, r.conversation,
    c.id IS NOT NULL, c.user_id, c.expires_at
FROM unnest($3::bytea[], $4::text[]) AS wanted (namespace, key)
JOIN hansard.records r ON r.tenant = $1 AND r.owner = $2 AND r.namespace = wanted.namespace AND r.key = wanted.key
LEFT JOIN hansard.conversations c ON c.tenant = r.tenant AND c.id = r.conversation;

-- lock_records --
-- Locks existing records against changes.
SELECT 1 FROM hansard.records r JOIN unnest($3::bytea[], $4::text[]) AS wanted (namespace, key) USING (namespace, key)
WHERE r.tenant = $1 AND r.owner = $2 ORDER BY r.namespace, r.key FOR UPDATE OF r;

-- hold_conversations --
-- Locks conversations against deletion, but not against appends. Returns those that exist.
SELECT id, user_id, expires_at FROM hansard.conversations
WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR KEY SHARE;

-- save_record --
-- Updates a locked record in place, so that writers waiting for its lock find it.
UPDATE hansard.records SET value = $5, data = $6, revision = $7, created_at = $8, updated_at = $9, expires_at = $10,
    conversation = $11
WHERE tenant = $1 AND owner = $2 AND namespace = $3 AND key = $4;

-- insert_record --
-- Inserts a record. Returns no row if another writer was first.
INSERT INTO hansard.records (tenant, owner, namespace, key, value, data, revision, created_at, updated_at, expires_at,
    conversation)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT DO NOTHING;

-- delete_records --
-- Records by key.
DELETE FROM hansard.records r USING unnest($3::bytea[], $4::text[]) AS gone (namespace, key)
WHERE r.tenant = $1 AND r.owner = $2 AND r.namespace = gone.namespace AND r.key = gone.key;

-- delete_records_of_owner --
-- Deletes the records of a user's view.
DELETE FROM hansard.records WHERE tenant = $1 AND owner = $2;

-- record_owners --
-- Users with records in their view.
SELECT DISTINCT owner FROM hansard.records WHERE tenant = $1 AND owner > '' ORDER BY owner;

-- delete_expired_records --
-- Deletes expired records of all tenants.
DELETE FROM hansard.records r USING (
    SELECT tenant, owner, namespace, key FROM hansard.records WHERE expires_at <= $1 LIMIT $2
) AS old
WHERE r.tenant = old.tenant AND r.owner = old.owner AND r.namespace = old.namespace AND r.key = old.key
    AND r.expires_at <= $1;

-- keep_blobs --
-- Stores blobs, or keeps existing ones for longer. Callers must lock a blob before they refer to it or drop it.
INSERT INTO hansard.blobs AS b (tenant, sha256, keep_until, data)
SELECT $1, given.sha256, $4, given.data FROM unnest($2::text[], $3::bytea[]) AS given (sha256, data) ORDER BY given.sha256
ON CONFLICT (tenant, sha256) DO UPDATE SET keep_until = greatest(b.keep_until, $4);

-- lock_blobs --
-- Locks blobs against removal and new references.
SELECT sha256 FROM hansard.blobs WHERE tenant = $1 AND sha256 = ANY($2::text[]) ORDER BY sha256 FOR UPDATE;

-- use_blobs --
-- Adds references from messages to blobs.
INSERT INTO hansard.blob_uses (tenant, conversation, line, seq, sha256)
SELECT DISTINCT $1, used.* FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[])
    AS used (conversation, line, seq, sha256)
ON CONFLICT DO NOTHING;

-- release_blobs --
-- Deletes the references of messages by segment and seq.
DELETE FROM hansard.blob_uses u USING unnest($3::bigint[], $4::bigint[]) AS gone (line, seq)
WHERE u.tenant = $1 AND u.conversation = $2 AND u.line = gone.line AND u.seq = gone.seq
RETURNING u.sha256;

-- drop_blobs --
-- Deletes locked blobs that are not referred to and need not be kept.
DELETE FROM hansard.blobs b WHERE b.tenant = $1 AND b.sha256 = ANY($2::text[]) AND b.keep_until <= $3
    AND NOT EXISTS (SELECT 1 FROM hansard.blob_uses u WHERE u.tenant = b.tenant AND u.sha256 = b.sha256);

-- find_blobs --
-- The bytes of blobs.
SELECT sha256, data FROM hansard.blobs WHERE tenant = $1 AND sha256 = ANY($2::text[]);

-- missing_blobs --
-- The hashes without a blob.
SELECT wanted.sha256 FROM unnest($2::text[]) AS wanted (sha256)
WHERE NOT EXISTS (SELECT 1 FROM hansard.blobs b WHERE b.tenant = $1 AND b.sha256 = wanted.sha256);

-- damaged_blobs --
-- The blobs of a tenant, or of all, whose bytes do not match their hash, and that are not in a bucket.
SELECT tenant, sha256 FROM hansard.blobs
WHERE ($1::text IS NULL OR tenant = $1) AND encode(sha256(data), 'hex') <> sha256
    AND data <> convert_to('hansard: this blob is in a bucket', 'UTF8') ORDER BY tenant, sha256;

-- unused_blobs --
-- Blobs of all tenants that are not referred to and need not be kept.
SELECT b.tenant, b.sha256 FROM hansard.blobs b WHERE b.keep_until <= $1
    AND NOT EXISTS (SELECT 1 FROM hansard.blob_uses u WHERE u.tenant = b.tenant AND u.sha256 = b.sha256) LIMIT $2;

-- add_tombstones --
-- Adds tombstones; an existing one keeps the later time.
INSERT INTO hansard.tombstones AS t (tenant, digest, at) SELECT $1, unnest($2::text[]), $3
ON CONFLICT (tenant, digest) DO UPDATE SET at = greatest(t.at, excluded.at);

-- find_tombstones --
-- The tombstones with these hashes, and their times.
SELECT digest, at FROM hansard.tombstones WHERE tenant = $1 AND digest = ANY($2::text[]);

-- delete_old_tombstones --
-- Deletes expired tombstones of all tenants.
DELETE FROM hansard.tombstones WHERE at <= $1;

-- add_usage --
-- Adds to usage rows, in the order of their keys.
INSERT INTO hansard.usage AS u (tenant, day, user_id, agent_id, model, messages, input_tokens, output_tokens,
    cached_tokens, reasoning_tokens, cost)
SELECT $1, day, user_id, agent_id, model, sum(messages), sum(input_tokens), sum(output_tokens), sum(cached_tokens),
    sum(reasoning_tokens), sum(cost)
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::double precision[])
AS given (day, user_id, agent_id, model, messages, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost)
GROUP BY day, user_id, agent_id, model ORDER BY day, user_id, agent_id, model
ON CONFLICT (tenant, day, user_id, agent_id, model) DO UPDATE SET messages = u.messages + excluded.messages,
    input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens,
    cached_tokens = u.cached_tokens + excluded.cached_tokens,
    reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens, cost = u.cost + excluded.cost;

-- find_usage --
-- The usage rows of a tenant between two days.
SELECT day, user_id, agent_id, model, messages, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost
FROM hansard.usage WHERE tenant = $1 AND day >= $2 AND day < $3 ORDER BY day, user_id, agent_id, model;

-- find_usage_of --
-- The same of a user. Looks for them on each day that has any, because the key begins with the day.
WITH RECURSIVE days AS (
    (SELECT u.day FROM hansard.usage u WHERE u.tenant = $1 AND u.day >= $3 ORDER BY u.day LIMIT 1)
    UNION ALL
    SELECT (SELECT u.day FROM hansard.usage u WHERE u.tenant = $1 AND u.day > days.day ORDER BY u.day LIMIT 1)
    FROM days WHERE days.day < $4
)
SELECT day, user_id, agent_id, model, messages, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost
FROM hansard.usage
WHERE tenant = $1 AND day = ANY(ARRAY(SELECT days.day FROM days WHERE days.day < $4)) AND user_id = $2
ORDER BY day, agent_id, model;

-- delete_usage_of --
-- The usage rows of a user, found like those of find_usage_of.
WITH RECURSIVE days AS (
    (SELECT u.day FROM hansard.usage u WHERE u.tenant = $1 ORDER BY u.day LIMIT 1)
    UNION ALL
    SELECT (SELECT u.day FROM hansard.usage u WHERE u.tenant = $1 AND u.day > days.day ORDER BY u.day LIMIT 1)
    FROM days WHERE days.day IS NOT NULL
)
DELETE FROM hansard.usage WHERE tenant = $1 AND day = ANY(ARRAY(SELECT days.day FROM days)) AND user_id = $2;

-- participations --
-- Messages of a participant of kind `user` in visible conversations.
SELECT m.conversation, m.id FROM hansard.messages m
JOIN hansard.conversations c ON c.tenant = m.tenant AND c.id = m.conversation
WHERE m.tenant = $1 AND left(m.participant, 256) = left($2, 256) AND m.participant = $2 AND m.participant_kind = 'user'
    AND ($3::text IS NULL OR c.user_id = $3) AND (c.expires_at IS NULL OR c.expires_at > $4)
LIMIT $5;

-- stamps --
-- The stamps of conversations, by which watchers notice changes.
SELECT id, stamp FROM hansard.conversations WHERE tenant = $1 AND id = ANY($2::text[]);

-- expired_conversations --
-- Expired conversations of all tenants.
SELECT tenant, id FROM hansard.conversations WHERE expires_at <= $1 LIMIT $2;

-- list_tenants --
-- Tenants with data, each found by one step along an index.
WITH RECURSIVE tenants AS (
    SELECT ''::text COLLATE "C" AS tenant
    UNION ALL
    SELECT least(
        (SELECT c.tenant FROM hansard.conversations c WHERE c.tenant > tenants.tenant ORDER BY c.tenant LIMIT 1),
        (SELECT r.tenant FROM hansard.records r WHERE r.tenant > tenants.tenant ORDER BY r.tenant LIMIT 1),
        (SELECT b.tenant FROM hansard.blobs b WHERE b.tenant > tenants.tenant ORDER BY b.tenant LIMIT 1)
    )
    FROM tenants WHERE tenants.tenant IS NOT NULL
)
SELECT tenant FROM tenants WHERE tenant > '' ORDER BY tenant;

-- conversations_after --
-- A page of conversations after a position.
SELECT tenant, id FROM hansard.conversations
WHERE ($1::text IS NULL OR tenant = $1) AND (tenant, id) > ($2, $3) ORDER BY tenant, id LIMIT $4;

-- count_by_days --
-- Groups of conversations of a tenant, or of all: first and last day as ordinals, messages of each, and how many.
SELECT (created_at + 62135596800000000) / 86400000000 + 1, (active_at + 62135596800000000) / 86400000000 + 1,
    message_count, count(*)
FROM hansard.conversations WHERE $1::text IS NULL OR tenant = $1 GROUP BY 1, 2, 3;

-- count_tenant --
-- The size of a tenant.
SELECT
    (SELECT count(*) FROM hansard.records WHERE tenant = $1),
    (SELECT count(*) FROM hansard.blobs WHERE tenant = $1),
    (SELECT coalesce(sum(length(data)), 0)::bigint FROM hansard.blobs WHERE tenant = $1);

-- count_all --
-- The size of the whole store.
SELECT
    (SELECT count(*) FROM hansard.records),
    (SELECT count(*) FROM hansard.blobs),
    (SELECT coalesce(sum(length(data)), 0)::bigint FROM hansard.blobs),
    (SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
     WHERE c.relkind = 'r'
        AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'hansard.conversations'::regclass));

-- delete_tenant_messages --
-- Deletes the data of these conversations of a tenant.
WITH indexed AS (DELETE FROM hansard.search WHERE tenant = $1 AND conversation = ANY($2::text[])),
    noted AS (DELETE FROM hansard.search_queue WHERE tenant = $1 AND conversation = ANY($2::text[]))
DELETE FROM hansard.messages WHERE tenant = $1 AND conversation = ANY($2::text[]);

-- delete_tenant_branches --
-- See delete_tenant_messages.
DELETE FROM hansard.branches WHERE tenant = $1 AND conversation = ANY($2::text[]);

-- delete_tenant_summaries --
-- See delete_tenant_messages.
DELETE FROM hansard.summaries WHERE tenant = $1 AND conversation = ANY($2::text[]);

-- delete_tenant_blob_uses --
-- See delete_tenant_messages.
DELETE FROM hansard.blob_uses WHERE tenant = $1 AND conversation = ANY($2::text[]);

-- delete_tenant_conversations --
-- See delete_tenant_messages.
DELETE FROM hansard.conversations WHERE tenant = $1 AND id = ANY($2::text[]);

-- delete_tenant_records --
-- Deletes the data of a tenant outside conversations.
DELETE FROM hansard.records WHERE tenant = $1;

-- lock_tenant_blobs --
-- See delete_tenant_records.
SELECT sha256 FROM hansard.blobs WHERE tenant = $1 ORDER BY sha256 FOR UPDATE;

-- delete_tenant_usage --
-- See delete_tenant_records.
DELETE FROM hansard.usage WHERE tenant = $1;

-- delete_tenant_tombstones --
-- See delete_tenant_records.
DELETE FROM hansard.tombstones WHERE tenant = $1;

-- search_state --
-- The version that built the index, and the number of messages of a tenant that it lacks, up to a limit.
SELECT version, (SELECT count(*) FROM (SELECT 1 FROM hansard.search_queue WHERE tenant = $1 LIMIT $2) AS tail)
FROM hansard.search_state;

-- index_statistics --
-- The tenant of at least half of the indexed messages, and the terms of more than so many of its messages, even if all
-- messages of others have them. NULL before the first ANALYZE.
SELECT
    largest.tenant,
    (SELECT array_agg(common.term)
    FROM unnest(w.most_common_elems::text::text[], w.most_common_elem_freqs) AS common (term, share)
    WHERE common.term IS NOT NULL AND (common.share - (1 - largest.share)) * c.reltuples > $2::bigint)
FROM (SELECT 1) AS one
LEFT JOIN (
    SELECT common.tenant, common.share
    FROM pg_stats AS t, unnest(t.most_common_vals::text::text[], t.most_common_freqs) AS common (tenant, share)
    WHERE t.schemaname = $1 AND t.tablename = 'search' AND t.attname = 'tenant' AND common.share >= 0.5 LIMIT 1
) AS largest ON true
LEFT JOIN pg_stats AS w ON w.schemaname = $1 AND w.tablename = 'search' AND w.attname = 'terms'
LEFT JOIN pg_class AS c ON c.relname = 'search' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1);

-- words_with_a_piece --
-- The words of an owner's messages that contain a text, those in the most messages first. Owners are not words.
SELECT word, count(*) FROM hansard.search, unnest(tsvector_to_array(terms)) AS word
WHERE tenant = $1 AND terms @@ $2::text::tsquery AND word COLLATE "C" > E'\x1f' AND position($3::text IN word) > 0
GROUP BY word ORDER BY count(*) DESC, word LIMIT $4;

-- words_that_end_so --
-- The same for words that end with a text.
SELECT word, count(*) FROM hansard.search, unnest(tsvector_to_array(terms)) AS word
WHERE tenant = $1 AND terms @@ $2::text::tsquery AND word COLLATE "C" > E'\x1f' AND right(word, length($3::text)) = $3
GROUP BY word ORDER BY count(*) DESC, word LIMIT $4;

-- save_search_state --
-- Saves the versions that built the index and that fill it now.
UPDATE hansard.search_state SET version = $1, filling = $2;

-- queued --
-- The next messages of a tenant to be indexed, after a position, of these conversations or of all; none while another
-- version fills the index. Once the bodies exceed a size, later rows have no body. `mark` changes with each update of a
-- message. Each part has a constant LIMIT, and only one of them has rows: the planner knows no parameters, and would read
-- a long queue to its end. The limits are those of `index.py`: LONG_PASS for all, SHORT_PASS for given conversations.
SELECT q.line, q.seq, m.id, m.role, m.format, CASE WHEN sum(m.size) OVER (ORDER BY q.conversation, q.line, q.seq) - m.size
    < $7 THEN m.body END, m.created_at, m.extra, q.conversation, m.mark, c.user_id
FROM (
    SELECT * FROM (
        (SELECT conversation, line, seq FROM hansard.search_queue
        WHERE $5::text[] IS NULL AND tenant = $1 AND (conversation, line, seq) > ($2, $3, $4)
        ORDER BY conversation, line, seq LIMIT 1000)
        UNION ALL
        SELECT of_one.* FROM unnest($5::text[]) AS given (id) CROSS JOIN LATERAL (
            SELECT conversation, line, seq FROM hansard.search_queue
            WHERE tenant = $1 AND conversation = given.id AND (conversation, line, seq) > ($2, $3, $4)
            ORDER BY line, seq LIMIT 200
        ) AS of_one
    ) AS waiting
    WHERE EXISTS (SELECT 1 FROM hansard.search_state WHERE filling = $8)
    ORDER BY conversation, line, seq LIMIT $6
) AS q
LEFT JOIN LATERAL (
    SELECT id, role, format, body, size, created_at, extra, xmin::text AS mark FROM hansard.messages
    WHERE tenant = $1 AND conversation = q.conversation AND line = q.line AND seq = q.seq OFFSET 0
) AS m ON true
LEFT JOIN LATERAL (
    SELECT user_id FROM hansard.conversations WHERE tenant = $1 AND id = q.conversation OFFSET 0
) AS c ON true
ORDER BY q.conversation, q.line, q.seq;

-- index_messages --
-- Indexes messages and removes them from the queue, if they are unchanged since their terms were computed and their
-- conversation is not locked. Writers to such a conversation wait for this commit. Left for the next pass: messages
-- whose conversation has another stamp under its lock, and those that another process has locked in the queue or
-- removed.
WITH state AS MATERIALIZED (
    SELECT 1 FROM hansard.search_state WHERE filling = $2 FOR SHARE
), held AS MATERIALIZED (
    SELECT c.id, c.stamp, c.user_id FROM hansard.conversations c
    WHERE c.tenant = $1 AND c.id = ANY($3::text[]) AND EXISTS (SELECT 1 FROM state)
    ORDER BY c.id FOR KEY SHARE OF c SKIP LOCKED
), calm AS MATERIALIZED (
    SELECT held.id, held.user_id FROM held
    JOIN hansard.conversations c ON c.tenant = $1 AND c.id = held.id AND c.stamp = held.stamp
), given AS MATERIALIZED (
    SELECT t.* FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::boolean[],
        $11::text[], $12::integer[])
    AS t (conversation, line, seq, mark, user_id, created_at, loose, terms, words)
    JOIN calm ON calm.id = t.conversation AND calm.user_id IS NOT DISTINCT FROM t.user_id
    JOIN hansard.search_queue q
        ON q.tenant = $1 AND q.conversation = t.conversation AND q.line = t.line AND q.seq = t.seq
    JOIN hansard.messages m
        ON m.tenant = $1 AND m.conversation = t.conversation AND m.line = t.line AND m.seq = t.seq AND m.xmin::text = t.mark
    FOR UPDATE OF q SKIP LOCKED
), indexed AS (
    INSERT INTO hansard.search (tenant, conversation, line, seq, created_at, loose, terms, words)
    SELECT $1, conversation, line, seq, created_at, loose, terms::tsvector, words FROM given
    ORDER BY conversation, line, seq
    ON CONFLICT (tenant, conversation, line, seq) DO UPDATE
    SET created_at = excluded.created_at, loose = excluded.loose, terms = excluded.terms, words = excluded.words
), done AS (
    DELETE FROM hansard.search_queue q USING given
    WHERE q.tenant = $1 AND q.conversation = given.conversation AND q.line = given.line AND q.seq = given.seq
)
SELECT count(*) FROM given;

-- delete_queued --
-- Deletes queue entries of deleted messages.
DELETE FROM hansard.search_queue q
USING unnest($2::text[], $3::bigint[], $4::bigint[]) AS gone (conversation, line, seq)
WHERE q.tenant = $1 AND q.conversation = gone.conversation AND q.line = gone.line AND q.seq = gone.seq
    AND NOT EXISTS (SELECT 1 FROM hansard.messages m WHERE m.tenant = $1 AND m.conversation = q.conversation
        AND m.line = q.line AND m.seq = q.seq);

-- queue_message --
-- Queues a message whose content has changed.
WITH indexed AS (
    DELETE FROM hansard.search WHERE tenant = $1 AND conversation = $2 AND line = $3 AND seq = $4
)
INSERT INTO hansard.search_queue (tenant, conversation, line, seq) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- queue_conversations --
-- Queues all messages of conversations to be indexed again; returns their number.
WITH indexed AS (DELETE FROM hansard.search WHERE tenant = $1 AND conversation = ANY($2::text[])), given AS MATERIALIZED (
    SELECT tenant, conversation, line, seq FROM hansard.messages WHERE tenant = $1 AND conversation = ANY($2::text[])
), queued AS (
    INSERT INTO hansard.search_queue (tenant, conversation, line, seq) SELECT * FROM given ON CONFLICT DO NOTHING
)
SELECT count(*) FROM given;

-- lock_conversations_after --
-- Locks a page of a tenant's conversations.
SELECT id FROM hansard.conversations WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3 FOR UPDATE;

-- delete_strays --
-- Deletes index entries of deleted conversations of all tenants: checks the next page of indexed conversations and
-- returns the last one. On a large index, all at once would exceed the statement timeout.
WITH page AS MATERIALIZED (
    SELECT DISTINCT tenant, conversation FROM hansard.search WHERE (tenant, conversation) > ($1, $2)
    ORDER BY tenant, conversation LIMIT $3
), gone AS (
    DELETE FROM hansard.search s USING page
    WHERE s.tenant = page.tenant AND s.conversation = page.conversation AND NOT EXISTS (
        SELECT 1 FROM hansard.conversations c WHERE c.tenant = page.tenant AND c.id = page.conversation)
)
SELECT tenant, conversation FROM page ORDER BY tenant DESC, conversation DESC LIMIT 1;

-- count_strays --
-- The number of index entries of deleted conversations, page by page, after the last conversation of a page.
WITH page AS MATERIALIZED (
    SELECT DISTINCT tenant, conversation FROM hansard.search
    WHERE (tenant, conversation) > ($1, $2) AND ($4::text IS NULL OR tenant = $4)
    ORDER BY tenant, conversation LIMIT $3
), gone AS MATERIALIZED (
    SELECT page.* FROM page WHERE NOT EXISTS (
        SELECT 1 FROM hansard.conversations c WHERE c.tenant = page.tenant AND c.id = page.conversation)
)
SELECT tenant, conversation, (SELECT count(*) FROM gone JOIN hansard.search USING (tenant, conversation))
FROM page ORDER BY tenant DESC, conversation DESC LIMIT 1;

-- count_queued --
-- The number of messages of all tenants that are not indexed, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM hansard.search_queue LIMIT $1) AS waiting;

-- queued_tenants --
-- Tenants with messages to be indexed, each found by one step along an index.
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM hansard.search_queue ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT q.tenant FROM hansard.search_queue q WHERE q.tenant > tenants.tenant ORDER BY q.tenant LIMIT 1)
    FROM tenants WHERE tenants.tenant IS NOT NULL
)
SELECT tenant FROM tenants WHERE tenant IS NOT NULL;

-- search_places --
-- The messages of a conversation in the index and in the queue.
SELECT line, seq, true FROM hansard.search WHERE tenant = $1 AND conversation = $2
UNION ALL
SELECT line, seq, false FROM hansard.search_queue WHERE tenant = $1 AND conversation = $2;

-- other_terms --
-- The messages that are indexed with other terms, another length or another time.
SELECT s.line, s.seq FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::integer[])
AS t (line, seq, created_at, terms, words)
JOIN hansard.search s ON s.tenant = $1 AND s.conversation = $2 AND s.line = t.line AND s.seq = t.seq
WHERE s.terms <> t.terms::tsvector OR s.words <> t.words OR s.created_at <> t.created_at;

-- conversations_by_id --
-- Conversations, without their branches.
SELECT id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at, last_message_at,
    message_count, version, branch, expires_at, archived_at
FROM hansard.conversations WHERE tenant = $1 AND id = ANY($2::text[]);
