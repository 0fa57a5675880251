-- find_head --
-- A conversation by id, once for each of its branches.
SELECT c.pk, c.id, c.user_id, c.agent_id, c.audit_id, c.title, c.metadata, c.summary, c.created_at, c.updated_at,
    c.last_message_at, c.message_count, c.version, c.branch, c.expires_at, c.archived_at, c.seq, c.buried, c.largest,
    b.id, b.line, b.path, b.count, b.parent, b.from_seq, b.created_at
FROM conversations c LEFT JOIN branches b ON b.conversation = c.pk WHERE c.tenant = ? AND c.id = ?;

-- find_conversation --
-- A conversation without its branches.
SELECT id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at, last_message_at,
    message_count, version, branch, expires_at, archived_at
FROM conversations WHERE tenant = ? AND id = ?;

-- find_pk_and_segment --
-- The pk of a conversation, and the segment of its active branch.
SELECT c.pk, b.line FROM conversations c JOIN branches b ON b.conversation = c.pk AND b.id = c.branch
WHERE c.tenant = ? AND c.id = ?;

-- find_place --
-- The columns of a conversation that a read of the active branch needs.
SELECT c.pk, c.user_id, c.expires_at, c.message_count, c.largest, c.version, c.seq, b.line, b.path
FROM conversations c JOIN branches b ON b.conversation = c.pk AND b.id = c.branch
WHERE c.tenant = ? AND c.id = ?;

-- find_place_of_branch --
-- The same for a named branch; its columns are NULL when there is none.
SELECT c.pk, c.user_id, c.expires_at, c.message_count, c.largest, c.version, c.seq, b.line, b.path
FROM conversations c LEFT JOIN branches b ON b.conversation = c.pk AND b.id = ?
WHERE c.tenant = ? AND c.id = ?;

-- insert_conversation --
-- A new conversation; its pk is the last inserted rowid.
INSERT INTO conversations (tenant, id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at,
    last_message_at, active_at, message_count, version, branch, expires_at, archived_at, seq, buried, largest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- save_conversation --
-- Saves all columns of a conversation that can change.
UPDATE conversations SET user_id = ?, agent_id = ?, audit_id = ?, title = ?, metadata = ?, summary = ?, created_at = ?,
    updated_at = ?, last_message_at = ?, active_at = ?, message_count = ?, version = ?, branch = ?, expires_at = ?,
    archived_at = ?, seq = ?, buried = ?, largest = ?
WHERE pk = ?;

-- save_counters --
-- Saves the columns of a conversation that an append changes.
UPDATE conversations SET updated_at = ?, last_message_at = ?, active_at = ?, message_count = ?, version = ?, seq = ?,
    largest = ?
WHERE pk = ?;

-- save_branch --
-- Inserts or updates a branch.
INSERT INTO branches (line, conversation, id, path, count, parent, from_seq, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (conversation, id) DO UPDATE SET line = excluded.line, path = excluded.path, count = excluded.count,
    parent = excluded.parent, from_seq = excluded.from_seq, created_at = excluded.created_at;

-- save_count --
-- Saves the count of a branch after an append.
UPDATE branches SET count = ? WHERE line = ?;

-- last_segment --
-- The highest segment number that was ever assigned.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'branches';

-- reserve_segment --
-- Reserves a segment that no branch owns: a branch row is created and removed, and AUTOINCREMENT never reuses its
-- number.
INSERT INTO branches (line, conversation, id, created_at) VALUES (?, -1, '', 0);

-- release_segment --
-- The other half of reserve_segment.
DELETE FROM branches WHERE conversation = -1;

-- delete_branch --
-- One branch.
DELETE FROM branches WHERE conversation = ? AND id = ?;

-- delete_branches --
-- All branches of a conversation.
DELETE FROM branches WHERE conversation = ?;

-- insert_message --
-- Inserts a message without rare columns: in Python, binding a None takes longer than binding three values.
INSERT INTO messages (key, conversation, id, role, format, body, created_at, extra)
VALUES (?, ?, ?, ?, nullif(?, 'text'), ?, ?, nullif(?, ''));

-- insert_rare_message --
-- Inserts a message with a participant, a scope or a pin.
INSERT INTO messages (key, conversation, id, role, format, body, created_at, extra, participant, scope, pinned)
VALUES (?, ?, ?, ?, nullif(?, 'text'), ?, ?, nullif(?, ''), ?, ?, ?);

-- find_message --
-- A message by id.
SELECT key, id, role, format, body, created_at, extra FROM messages WHERE conversation = ? AND id = ?;

-- save_message --
-- Saves the columns of a message that an update can change. The body stays if none is passed.
UPDATE messages SET format = ?, body = coalesce(?, body), extra = ?, pinned = ? WHERE key = ?;

-- tail --
-- The newest messages of a segment, downwards from a key.
SELECT key, id, role, format, body, created_at, extra FROM messages
WHERE key > ? AND key < ? ORDER BY key DESC LIMIT ?;

-- head --
-- The oldest messages of a segment, upwards from a key.
SELECT key, id, role, format, body, created_at, extra FROM messages
WHERE key > ? AND key < ? ORDER BY key LIMIT ?;

-- times_between --
-- The times of the messages of a run, newest first.
SELECT key, id, created_at FROM messages WHERE key > ? AND key < ? ORDER BY key DESC;

-- span_between --
-- The number of messages in a run, and the keys of its first and last.
SELECT count(*), min(key), max(key) FROM messages WHERE key > ? AND key < ?;

-- delete_between --
-- A run of messages.
DELETE FROM messages WHERE key > ? AND key < ?;

-- insert_summary --
-- A summary.
INSERT INTO summaries (conversation, branch, from_seq, to_seq, text, model, prompt_id, token_count, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- find_summaries --
-- The summaries of a conversation, oldest first.
SELECT branch, from_seq, to_seq, text, model, prompt_id, token_count, created_at, pk FROM summaries
WHERE conversation = ? ORDER BY pk;

-- delete_summary --
-- One summary.
DELETE FROM summaries WHERE pk = ?;

-- delete_summaries --
-- All summaries of a conversation.
DELETE FROM summaries WHERE conversation = ?;

-- delete_conversation --
-- The conversation's own row.
DELETE FROM conversations WHERE pk = ?;

-- find_record --
-- A record by key.
SELECT pk, namespace, key, value, revision, created_at, updated_at, expires_at, conversation FROM records
WHERE tenant = ? AND owner = ? AND namespace = ? AND key = ?;

-- has_shared_records --
-- Whether there are records of a namespace outside users' views.
SELECT 1 FROM records WHERE tenant = ? AND owner = '' AND namespace = ? LIMIT 1;

-- find_revision --
-- The columns of a record that a write needs before it replaces the record.
SELECT revision, created_at, expires_at, conversation FROM records
WHERE tenant = ? AND owner = ? AND namespace = ? AND key = ?;

-- conversation_of_record --
-- The conversation that a record belongs to.
SELECT id, user_id, expires_at FROM conversations WHERE pk = ?;

-- put_record --
-- Inserts a record, or updates it in place.
INSERT INTO records (tenant, owner, namespace, key, value, revision, created_at, updated_at, expires_at, conversation)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, owner, namespace, key) DO UPDATE SET
    value = excluded.value, revision = excluded.revision, created_at = excluded.created_at,
    updated_at = excluded.updated_at, expires_at = excluded.expires_at, conversation = excluded.conversation;

-- delete_record --
-- A record by key.
DELETE FROM records WHERE tenant = ? AND owner = ? AND namespace = ? AND key = ?;

-- delete_records_of --
-- The records of a conversation.
DELETE FROM records WHERE conversation = ?;

-- delete_records_of_owner --
-- Deletes the records of a user's view.
DELETE FROM records WHERE tenant = ? AND owner = ?;

-- record_owners --
-- Users with records in their view.
SELECT DISTINCT owner FROM records WHERE tenant = ? AND owner > '' ORDER BY owner;

-- expired_records --
-- Expired records.
SELECT pk FROM records WHERE expires_at <= ? LIMIT ?;

-- delete_record_by_pk --
-- One expired record.
DELETE FROM records WHERE pk = ?;

-- keep_blob --
-- Stores a blob, or keeps an existing one for longer.
INSERT INTO blobs (tenant, sha256, keep_until, data) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, sha256) DO UPDATE SET keep_until = max(keep_until, excluded.keep_until);

-- use_blob --
-- Adds a reference from a message to a blob.
INSERT OR IGNORE INTO blob_uses (message, blob)
SELECT ?, pk FROM blobs WHERE tenant = ? AND sha256 = ?;

-- used_blobs_between --
-- The blobs that a run of messages refers to.
SELECT DISTINCT blob FROM blob_uses WHERE message > ? AND message < ?;

-- release_blobs_between --
-- Deletes the references of a run of messages to blobs.
DELETE FROM blob_uses WHERE message > ? AND message < ?;

-- drop_blob --
-- Deletes a blob that is not referred to and need not be kept.
DELETE FROM blobs WHERE pk = ? AND keep_until <= ? AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = blobs.pk);

-- find_blob --
-- The bytes of a blob.
SELECT data FROM blobs WHERE tenant = ? AND sha256 = ?;

-- blobs_of_tenant --
-- The blobs of a tenant, or of all, a page after a pk.
SELECT pk, tenant, sha256, data FROM blobs WHERE tenant = coalesce(?, tenant) AND pk > ? ORDER BY pk LIMIT ?;

-- unused_blobs --
-- Blobs that are not referred to and need not be kept.
SELECT pk FROM blobs WHERE keep_until <= ? AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = blobs.pk) LIMIT ?;

-- add_tombstone --
-- Adds a tombstone; an existing one keeps the later time.
INSERT INTO tombstones (tenant, digest, at) VALUES (?, ?, ?)
ON CONFLICT (tenant, digest) DO UPDATE SET at = max(at, excluded.at);

-- find_tombstone --
-- The time of a tombstone.
SELECT at FROM tombstones WHERE tenant = ? AND digest = ?;

-- delete_old_tombstones --
-- Deletes expired tombstones.
DELETE FROM tombstones WHERE at <= ?;

-- add_usage --
-- Adds to a usage row.
INSERT INTO usage (tenant, day, user_id, agent_id, model, messages, input_tokens, output_tokens, cached_tokens,
    reasoning_tokens, cost)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, day, user_id, agent_id, model) DO UPDATE SET messages = messages + excluded.messages,
    input_tokens = input_tokens + excluded.input_tokens, output_tokens = output_tokens + excluded.output_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens, cost = cost + excluded.cost;

-- find_usage --
-- The usage rows of a tenant between two days.
SELECT day, user_id, agent_id, model, messages, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost
FROM usage WHERE tenant = ? AND day >= ? AND day < ? ORDER BY day, user_id, agent_id, model;

-- find_usage_of --
-- The same of a user. Looks for them on each day that has any, because the key begins with the day.
SELECT day, user_id, agent_id, model, messages, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost
FROM usage WHERE tenant = ? AND user_id = ? AND day IN (
    WITH RECURSIVE days (day) AS (
        SELECT min(day) FROM usage WHERE tenant = ? AND day >= ?
        UNION ALL SELECT (SELECT min(u.day) FROM usage u WHERE u.tenant = ? AND u.day > days.day) FROM days WHERE day < ?
    )
    SELECT day FROM days WHERE day < ?
) ORDER BY day, agent_id, model;

-- delete_usage_of --
-- The usage rows of a user, found like those of find_usage_of.
DELETE FROM usage WHERE tenant = ? AND user_id = ? AND day IN (
    WITH RECURSIVE days (day) AS (
        SELECT min(day) FROM usage WHERE tenant = ?
        UNION ALL SELECT (SELECT min(u.day) FROM usage u WHERE u.tenant = ? AND u.day > days.day) FROM days WHERE day IS NOT NULL
    )
    SELECT day FROM days
);

-- participations --
-- Messages of a participant in all conversations of a tenant.
SELECT m.key, c.id, c.user_id, c.expires_at, m.id, m.extra FROM messages m JOIN conversations c ON c.pk = m.conversation
WHERE m.participant = ? AND c.tenant = ? ORDER BY m.key;

-- expired_conversations --
-- Expired conversations.
SELECT tenant, id FROM conversations WHERE expires_at <= ? LIMIT ?;

-- list_tenants --
-- Tenants with data, each found by one step along an index.
WITH RECURSIVE tenants (tenant) AS (
    SELECT ''
    UNION ALL
    SELECT (
        SELECT min(tenant) FROM (
            SELECT min(c.tenant) AS tenant FROM conversations c WHERE c.tenant > tenants.tenant
            UNION ALL SELECT min(r.tenant) FROM records r WHERE r.tenant > tenants.tenant
            UNION ALL SELECT min(b.tenant) FROM blobs b WHERE b.tenant > tenants.tenant
        )
    )
    FROM tenants WHERE tenants.tenant IS NOT NULL
)
SELECT tenant FROM tenants WHERE tenant > '';

-- conversations_of_tenant --
-- The conversations of a tenant, a page after a pk.
SELECT pk, tenant, id FROM conversations WHERE tenant = coalesce(?, tenant) AND pk > ? ORDER BY pk LIMIT ?;

-- ids_of_tenant --
-- The ids of a tenant's conversations.
SELECT id FROM conversations WHERE tenant = ?;

-- count_by_days --
-- Groups of conversations: first and last day as ordinals, messages of each, and how many.
SELECT (created_at + 62135596800000000) / 86400000000 + 1, (active_at + 62135596800000000) / 86400000000 + 1,
    message_count, count(*)
FROM conversations GROUP BY 1, 2, 3;

-- count_by_days_of_tenant --
-- The same for one tenant.
SELECT (created_at + 62135596800000000) / 86400000000 + 1, (active_at + 62135596800000000) / 86400000000 + 1,
    message_count, count(*)
FROM conversations WHERE tenant = ? GROUP BY 1, 2, 3;

-- count_unindexed --
-- Messages of a tenant, or of all, that are not in the search index yet, up to a limit.
SELECT count(*) FROM (SELECT message FROM search_rows WHERE n > ? ORDER BY n LIMIT ?) r
JOIN messages m ON m.key = r.message JOIN conversations c ON c.pk = m.conversation WHERE c.tenant = coalesce(?, c.tenant);

-- count_others --
-- Records, blobs and their bytes.
SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM blobs), (SELECT coalesce(sum(length(data)), 0) FROM blobs);

-- count_others_of_tenant --
-- The same for one tenant.
SELECT
    (SELECT count(*) FROM records WHERE tenant = wanted),
    (SELECT count(*) FROM blobs WHERE tenant = wanted),
    (SELECT coalesce(sum(length(data)), 0) FROM blobs WHERE tenant = wanted)
FROM (SELECT ? AS wanted);

-- delete_tenant_records --
-- Deletes the data of a tenant outside conversations.
DELETE FROM records WHERE tenant = ?;

-- delete_tenant_blobs --
-- See delete_tenant_records.
DELETE FROM blobs WHERE tenant = ?;

-- delete_tenant_usage --
-- See delete_tenant_records.
DELETE FROM usage WHERE tenant = ?;

-- delete_tenant_tombstones --
-- See delete_tenant_records.
DELETE FROM tombstones WHERE tenant = ?;

-- add_search_row --
-- Adds a new message to those that are not indexed yet.
INSERT INTO search_rows (message) VALUES (?);

-- add_many_search_rows --
-- The same for several messages, in order. One statement: after each, another thread of Python may run.
INSERT INTO search_rows (message) SELECT value FROM json_each(?) ORDER BY key;

-- add_search_rows --
-- The same for a run of messages.
INSERT INTO search_rows (message) SELECT key FROM messages WHERE key BETWEEN ? AND ? ORDER BY key;

-- search_state --
-- How far the index is filled: the last indexed row, whether there are entries, and the last row of all.
SELECT version, indexed, latest, lag, unclean, EXISTS (SELECT 1 FROM search_places), (SELECT max(n) FROM search_rows)
FROM search_state WHERE one = 0;

-- count_all_search_entries --
-- The number of messages that are indexed.
SELECT count(*) FROM search_entries;

-- save_search_state --
-- Saves the state after an index pass.
UPDATE search_state SET version = ?, indexed = ?, latest = ?, lag = ? WHERE one = 0;

-- set_unclean --
-- Sets whether the index may still contain deleted terms.
UPDATE search_state SET unclean = ? WHERE one = 0;

-- to_index --
-- The next messages to be indexed; NULLs for deleted ones.
SELECT r.n, c.tenant, c.user_id, c.pk, m.key, m.id, m.role, m.format, m.body, m.created_at, m.extra
FROM search_rows r LEFT JOIN messages m ON m.key = r.message LEFT JOIN conversations c ON c.pk = m.conversation
WHERE r.n > ? ORDER BY r.n LIMIT ?;

-- add_search_entry --
-- Indexes the terms of a message.
INSERT INTO search (rowid, words, more, owner) VALUES (?, ?, ?, ?);

-- remove_search_entry --
-- Removes the terms of a message.
INSERT INTO search (search, rowid, words, more, owner) VALUES ('delete', ?, ?, ?, ?);

-- add_search_place --
-- Stores where a message is indexed.
INSERT INTO search_places (message, entry) VALUES (?, ?);

-- find_search_place --
-- Whether and where a message is indexed.
SELECT p.entry, c.user_id, c.pk FROM search_places p JOIN messages m ON m.key = p.message
JOIN conversations c ON c.pk = m.conversation WHERE p.message = ?;

-- indexed_between --
-- The indexed messages of a run, with their index entries.
SELECT p.entry, c.user_id, c.pk, m.key, m.id, m.role, m.format, m.body, m.created_at, m.extra
FROM search_places p JOIN messages m ON m.key = p.message JOIN conversations c ON c.pk = m.conversation
WHERE p.message > ? AND p.message < ? ORDER BY p.entry;

-- indexed_of_conversation --
-- The indexed messages of a conversation.
SELECT p.entry, m.key, m.id, m.role, m.format, m.body, m.created_at, m.extra
FROM messages m JOIN search_places p ON p.message = m.key WHERE m.conversation = ? ORDER BY p.entry;

-- search_lengths --
-- The lengths of a conversation's messages that the index has.
SELECT p.entry, e.words FROM messages m JOIN search_places p ON p.message = m.key
JOIN search_entries e ON e.entry = p.entry WHERE m.conversation = ?;

-- delete_search_places --
-- Deletes the places in the index of a run of messages.
DELETE FROM search_places WHERE message > ? AND message < ?;

-- delete_search_entry --
-- Deletes the entry of a message that is no longer indexed.
DELETE FROM search_entries WHERE entry = ?;

-- delete_indexed_rows --
-- Deletes the rows of messages that are indexed now. The last row stays, so that its number is never reused.
DELETE FROM search_rows WHERE n <= ? AND n < (SELECT max(n) FROM search_rows);

-- list_search_entry --
-- Stores which message an entry belongs to, and its length.
INSERT INTO search_entries (entry, message, words) VALUES (?, ?, ?);

-- change_search_entry --
-- Stores the new length of a message.
UPDATE search_entries SET words = ? WHERE entry = ?;

-- search_slot --
-- The last entry of a second, and the time of its newest message.
SELECT max(e.entry), max(m.created_at) FROM search_entries e JOIN messages m ON m.key = e.message
WHERE e.entry BETWEEN ? AND ?;

-- search_entry_between --
-- Whether there is an entry between two numbers.
SELECT 1 FROM search_entries WHERE entry BETWEEN ? AND ? LIMIT 1;

-- search_slots --
-- As `search_slot`, for those of a JSON list of seconds that have entries.
SELECT j.value, max(e.entry), max(m.created_at) FROM json_each(?) j
CROSS JOIN search_entries e ON e.entry BETWEEN j.value << 12 AND j.value << 12 | 4095
CROSS JOIN messages m ON m.key = e.message GROUP BY j.key;

-- empty_search_entries --
-- Deletes all entries.
DELETE FROM search_entries;

-- has_expiring_conversations --
-- Whether a tenant has conversations that expire.
SELECT EXISTS (SELECT 1 FROM conversations WHERE tenant = ? AND expires_at IS NOT NULL);

-- find_fork --
-- The segment of a branch of a tenant whose conversation has several.
SELECT b.line FROM branches b INDEXED BY branches_forked CROSS JOIN conversations c ON c.pk = b.conversation
WHERE (b.count IS NOT NULL OR b.path IS NOT NULL) AND c.tenant = ? LIMIT 1;

-- find_newer_fork --
-- The same among the segments above a number, which takes as long as there are such.
SELECT b.line FROM branches b CROSS JOIN conversations c ON c.pk = b.conversation
WHERE b.line > ? AND (b.count IS NOT NULL OR b.path IS NOT NULL) AND c.tenant = ? LIMIT 1;

-- is_fork --
-- Whether a segment is still that of such a branch.
SELECT EXISTS (SELECT 1 FROM branches WHERE line = ? AND (count IS NOT NULL OR path IS NOT NULL));

-- positions_by_key --
-- The positions of messages in results, by a JSON list of keys.
SELECT m.key, m.created_at, c.id FROM json_each(?) j CROSS JOIN messages m ON m.key = j.value
CROSS JOIN conversations c ON c.pk = m.conversation;

-- messages_by_key --
-- Messages by a JSON list of keys.
SELECT m.key, m.id, m.role, m.format, m.body, m.created_at, m.extra
FROM json_each(?) j CROSS JOIN messages m ON m.key = j.value;

-- count_search_entries --
-- The number of entries of a tenant that match, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?);

-- find_search_tenant --
-- The number of a tenant in the index.
SELECT pk FROM search_tenants WHERE tenant = ?;

-- add_search_tenant --
-- Adds a tenant to the index.
INSERT INTO search_tenants (tenant) VALUES (?);


-- delete_search_tenant --
-- Deletes a tenant without index entries.
DELETE FROM search_tenants WHERE tenant = ?;

-- is_large_search --
-- Whether the index has more than so many pages.
SELECT 1 FROM search_data LIMIT 1 OFFSET ?;

-- merge_search --
-- Merges segments of the index, up to a number of pages, which removes deleted terms.
INSERT INTO search (search, rank) VALUES ('merge', ?);

-- configure_search --
-- Sets an option of the index.
INSERT INTO search (search, rank) VALUES (?, ?);

-- empty_search --
-- Empties the index.
INSERT INTO search (search) VALUES ('delete-all');

-- empty_search_places --
-- Deletes all places in the index.
DELETE FROM search_places;

-- empty_search_rows --
-- See refill_search_rows.
DELETE FROM search_rows;

-- refill_search_rows --
-- Marks every message as not indexed, in the order of time.
INSERT INTO search_rows (message) SELECT key FROM messages ORDER BY created_at, key;

-- find_conversations_by_segment --
-- The conversations of a JSON list of segments, with their active branches. A segment whose branch has got a new one has no
-- row in `branches` any more, only messages that other branches share; that of a new branch has no messages yet.
SELECT j.value, c.id, c.user_id, c.agent_id, c.audit_id, c.title, c.metadata, c.summary, c.created_at, c.updated_at,
    c.last_message_at, c.message_count, c.version, c.branch, c.expires_at, c.archived_at, b.line, b.path
FROM json_each(?) j CROSS JOIN conversations c ON c.pk = coalesce(
        (SELECT o.conversation FROM branches o WHERE o.line = j.value),
        (SELECT m.conversation FROM messages m WHERE m.key > j.value << 30 AND m.key < j.value + 1 << 30 LIMIT 1)
    ) CROSS JOIN branches b ON b.conversation = c.pk AND b.id = c.branch;

-- not_listed_for_search --
-- Messages without a row for the index.
SELECT m.id, c.tenant, c.id FROM messages m JOIN conversations c ON c.pk = m.conversation
WHERE c.tenant = coalesce(?, c.tenant) AND m.key NOT IN (SELECT message FROM search_rows WHERE n > ?) AND m.key NOT IN (
    SELECT p.message FROM search_places p JOIN search_entries e ON e.entry = p.entry AND e.message = p.message
);

-- message_of_search_entry --
-- The message that an entry of the index belongs to.
SELECT c.pk, c.tenant, c.id, m.id FROM search_entries e JOIN messages m ON m.key = e.message
JOIN conversations c ON c.pk = m.conversation JOIN search_places p ON p.message = m.key
WHERE e.entry = ? AND p.entry = e.entry;

-- walk_search_terms --
-- Every term of the index at every position, in the table created for this.
SELECT term, doc, col, offset FROM temp.search_terms;

-- is_search_entry --
-- Whether an entry of the index matches.
SELECT 1 FROM search WHERE search MATCH ? AND rowid = ?;

-- listed_but_gone --
-- Rows for the index without a message.
SELECT p.message FROM search_places p WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.key = p.message);
