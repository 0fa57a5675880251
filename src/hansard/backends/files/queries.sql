-- find_row --
-- What the index says of a journal.
SELECT pk, folder, inode, size, mtime, lines, tail, id, journal, head, rest, usage FROM conversations WHERE name = ?;

-- find_spot --
-- Whether a row is still the one that was read.
SELECT pk, inode, size, mtime, tail FROM conversations WHERE name = ?;

-- add_row --
-- A journal that the index did not know.
INSERT INTO conversations (
    inode, size, mtime, lines, tail, updated_at, head, folder, live, user_id, agent_id, active_at, expires_at,
    name, id, journal, rest, usage
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- set_row --
-- What most writes change, if the row is still the one that was read.
UPDATE conversations SET inode = ?, size = ?, mtime = ?, lines = ?, tail = ?, updated_at = ?, head = ?, folder = ?,
    live = ?, user_id = ?, agent_id = ?, active_at = ?, expires_at = ?
WHERE pk = ? AND name = ? AND inode = ? AND size = ? AND mtime = ? AND tail = ?;

-- set_row_in_place --
-- The same, where nothing but the time of the last change decides about its place in listings.
UPDATE conversations SET inode = ?, size = ?, mtime = ?, lines = ?, tail = ?, updated_at = ?, head = ?
WHERE pk = ? AND name = ? AND inode = ? AND size = ? AND mtime = ? AND tail = ?;

-- set_rest --
-- What few writes change.
UPDATE conversations SET id = ?, journal = ?, rest = ?, usage = ? WHERE pk = ?;

-- delete_row --
-- The journal is gone.
DELETE FROM conversations WHERE pk = ?;

-- delete_messages --
-- All messages of a conversation.
DELETE FROM messages WHERE conversation = ?;

-- delete_holders --
-- All references of a conversation to blobs.
DELETE FROM holders WHERE conversation = ?;

-- find_many --
-- Those of a list of messages that the index has.
SELECT id, segment, length, seq, n FROM messages
WHERE conversation = ? AND id IN (SELECT value FROM json_each(?));

-- find_one --
-- The same for one message.
SELECT id, segment, length, seq, n FROM messages WHERE conversation = ? AND id = ?;

-- find_message --
-- Where a message stands.
SELECT segment, seq, created, size, offset, length, crc FROM messages WHERE conversation = ? AND id = ?;

-- known_messages --
-- All that a new reading of a journal may keep.
SELECT id, segment, seq, created, size, offset, length, crc, role, participant, user_id, pinned, n FROM messages
WHERE conversation = ?;

-- add_message --
-- One more message, or a new version of the one at that place.
INSERT INTO messages (
    conversation, segment, seq, created, size, offset, length, crc, role, participant, user_id, pinned, id, n
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (conversation, segment, seq) DO UPDATE SET created = excluded.created, size = excluded.size,
    offset = excluded.offset, length = excluded.length, crc = excluded.crc, role = excluded.role,
    participant = excluded.participant, user_id = excluded.user_id, pinned = excluded.pinned, n = excluded.n
WHERE id = excluded.id;

-- move_message --
-- It stands elsewhere in the journal, and says what it said.
UPDATE messages SET offset = ? WHERE conversation = ? AND segment = ? AND seq = ?;

-- delete_message --
-- It is gone from the journal.
DELETE FROM messages WHERE conversation = ? AND segment = ? AND seq = ?;

-- numbers_of --
-- The numbers of all messages of a conversation.
SELECT n FROM messages WHERE conversation = ?;

-- add_holder --
-- A message refers to a blob.
INSERT OR IGNORE INTO holders (digest, n, conversation) VALUES (?, ?, ?);

-- delete_holder --
-- A message is gone, and with it its references.
DELETE FROM holders WHERE conversation = ? AND n = ?;

-- digests --
-- All blobs that a conversation refers to.
SELECT DISTINCT digest FROM holders WHERE conversation = ?;

-- digests_of --
-- The blobs that one message refers to.
SELECT digest FROM holders WHERE conversation = ?1
    AND n = (SELECT n FROM messages WHERE conversation = ?1 AND id = ?2);

-- length_of_messages --
-- Bytes of all messages in the journal.
SELECT coalesce(sum(length), 0) FROM messages WHERE conversation = ?;

-- next_segment --
-- The segments that hold messages, one after another.
SELECT min(segment) FROM messages WHERE conversation = ? AND segment > ?;

-- ascending --
-- Messages of a run.
SELECT segment, seq, created, size, offset, length, crc FROM messages
WHERE conversation = ? AND segment = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?;

-- descending --
-- The same from the end.
SELECT segment, seq, created, size, offset, length, crc FROM messages
WHERE conversation = ? AND segment = ? AND seq > ? AND seq <= ? ORDER BY seq DESC LIMIT ?;

-- pinned --
-- The pinned messages of a run.
SELECT segment, seq, created, size, offset, length, crc FROM messages INDEXED BY messages_pinned
WHERE conversation = ? AND segment = ? AND seq > ? AND seq <= ? AND pinned ORDER BY seq;

-- count_run --
-- How many messages a run holds, and its first and last seq.
SELECT count(*), coalesce(min(seq), 0), coalesce(max(seq), 0) FROM messages
WHERE conversation = ? AND segment = ? AND seq > ? AND seq <= ?;

-- ids_of_run --
-- Their ids.
SELECT id FROM messages WHERE conversation = ? AND segment = ? AND seq > ? AND seq <= ?;

-- last_of_segment --
-- The newest messages of a segment.
SELECT seq, created, id FROM messages WHERE conversation = ? AND segment = ? ORDER BY seq DESC;

-- time_at --
-- When the message at a place was created.
SELECT created FROM messages WHERE conversation = ? AND segment = ? AND seq = ?;

-- facts --
-- What the index knows of every journal's file.
SELECT name, folder, inode, size, mtime FROM conversations;

-- file_of --
-- The same of one journal.
SELECT folder, inode, size, mtime FROM conversations WHERE name = ?;

-- names --
-- Every journal.
SELECT name FROM conversations ORDER BY name;

-- usage --
-- Usage rows of all conversations, by journal.
SELECT id, journal, usage FROM conversations INDEXED BY with_usage WHERE usage IS NOT NULL;

-- heads --
-- Every conversation.
SELECT head, rest FROM conversations WHERE live;

-- overdue --
-- Conversations that have expired, and deletions that were not finished.
SELECT id FROM conversations WHERE (NOT live OR expires_at <= ?) AND id <> '' ORDER BY id;

-- said_by --
-- Messages of a participant.
SELECT c.id, m.id, c.head FROM messages m INDEXED BY messages_by_user JOIN conversations c ON c.pk = m.conversation
WHERE m.user_id = ? AND c.live ORDER BY c.id, m.seq;

-- is_held --
-- Whether a message of a conversation that exists refers to a blob.
SELECT 1 FROM holders h JOIN conversations c ON c.pk = h.conversation WHERE h.digest = ? AND c.live LIMIT 1;

-- set_unclean --
-- Whether deleted terms may still lie in the search index.
UPDATE search_state SET unclean = ?;

-- add_terms --
-- The terms of a message.
INSERT INTO search (rowid, words, more, owner) VALUES (?, ?, ?, ?);

-- delete_terms --
-- They go.
DELETE FROM search WHERE rowid = ?;

-- empty_search --
-- Everything out of the search index.
DELETE FROM search;

-- search_state --
-- How far the search index is.
SELECT indexed, version, unclean FROM search_state;

-- set_search_state --
-- The same.
UPDATE search_state SET indexed = ?, version = ?;

-- last_number --
-- The highest number.
SELECT coalesce(max(n), 0) FROM messages;

-- set_indexed --
-- Numbers that are free again may be given again: what gets them is not indexed yet.
UPDATE search_state SET indexed = min(indexed, ?);

-- to_index --
-- Messages that are not in the search index yet, and their journals.
SELECT m.n, c.name FROM messages m INDEXED BY messages_by_number JOIN conversations c ON c.pk = m.conversation
WHERE m.n > ? ORDER BY m.n LIMIT ?;

-- place_of_number --
-- Where a message stands, if it is still there as it was.
SELECT segment, seq, created, size, offset, length, crc FROM messages WHERE conversation = ? AND n = ?;

-- number_of --
-- The same by its id, and its number.
SELECT segment, seq, created, size, offset, length, crc, n FROM messages WHERE conversation = ? AND id = ?;

-- bytes_of_number --
-- Whether a message is still there, as it was.
SELECT length, crc FROM messages WHERE n = ?;

-- count_unindexed --
-- How many messages are not in the search index yet.
SELECT count(*) FROM messages WHERE n > (SELECT indexed FROM search_state);
