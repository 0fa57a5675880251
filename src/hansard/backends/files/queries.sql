-- find_row --
-- The row of a journal.
SELECT pk, folder, inode, size, mtime, lines, tail, id, journal, head, rest, usage FROM conversations WHERE name = ?;

-- find_version --
-- Whether a row is still the one that was read.
SELECT pk, inode, size, mtime, tail FROM conversations WHERE name = ?;

-- add_row --
-- A new journal.
INSERT INTO conversations (
    inode, size, mtime, lines, tail, updated_at, head, folder, live, user_id, agent_id, active_at, expires_at,
    name, id, journal, rest, usage
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- set_row --
-- The columns that most writes change, if the row is still the one that was read.
UPDATE conversations SET inode = ?, size = ?, mtime = ?, lines = ?, tail = ?, updated_at = ?, head = ?, folder = ?,
    live = ?, user_id = ?, agent_id = ?, active_at = ?, expires_at = ?
WHERE pk = ? AND name = ? AND inode = ? AND size = ? AND mtime = ? AND tail = ?;

-- set_row_in_place --
-- The same, if the columns that order listings did not change, except the time of the last change.
UPDATE conversations SET inode = ?, size = ?, mtime = ?, lines = ?, tail = ?, updated_at = ?, head = ?
WHERE pk = ? AND name = ? AND inode = ? AND size = ? AND mtime = ? AND tail = ?;

-- set_rest --
-- The columns that few writes change.
UPDATE conversations SET id = ?, journal = ?, rest = ?, usage = ? WHERE pk = ?;

-- delete_row --
-- The row of a removed journal.
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
-- The position of a message.
SELECT segment, seq, created, size, offset, length, crc FROM messages WHERE conversation = ? AND id = ?;

-- known_messages --
-- All messages of a conversation.
SELECT id, segment, seq, created, size, offset, length, crc, role, participant, user_id, pinned, n FROM messages
WHERE conversation = ?;

-- add_message --
-- A new message, or a new version of the one at that segment and seq.
INSERT INTO messages (
    conversation, segment, seq, created, size, offset, length, crc, role, participant, user_id, pinned, id, n
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (conversation, segment, seq) DO UPDATE SET created = excluded.created, size = excluded.size,
    offset = excluded.offset, length = excluded.length, crc = excluded.crc, role = excluded.role,
    participant = excluded.participant, user_id = excluded.user_id, pinned = excluded.pinned, n = excluded.n
WHERE id = excluded.id;

-- move_message --
-- A message that did not change, at another offset in the journal.
UPDATE messages SET offset = ? WHERE conversation = ? AND segment = ? AND seq = ?;

-- delete_message --
-- A message that was removed from the journal.
DELETE FROM messages WHERE conversation = ? AND segment = ? AND seq = ?;

-- numbers_of --
-- The numbers of all messages of a conversation.
SELECT n FROM messages WHERE conversation = ?;

-- add_holder --
-- A message refers to a blob.
INSERT OR IGNORE INTO holders (digest, n, conversation) VALUES (?, ?, ?);

-- delete_holder --
-- The references of a removed message.
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
-- The ids of the messages of a run.
SELECT id FROM messages WHERE conversation = ? AND segment = ? AND seq > ? AND seq <= ?;

-- last_of_segment --
-- The newest messages of a segment.
SELECT seq, created, id FROM messages WHERE conversation = ? AND segment = ? ORDER BY seq DESC;

-- time_at --
-- The time of the message at a segment and seq.
SELECT created FROM messages WHERE conversation = ? AND segment = ? AND seq = ?;

-- files --
-- The file of every journal, as last read.
SELECT name, folder, inode, size, mtime FROM conversations;

-- file_of --
-- The same for one journal.
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

-- messages_of_user --
-- Messages of a user.
SELECT c.id, m.id, c.head FROM messages m INDEXED BY messages_by_user JOIN conversations c ON c.pk = m.conversation
WHERE m.user_id = ? AND c.live ORDER BY c.id, m.seq;

-- is_referenced --
-- Whether a message of a conversation that exists refers to a blob.
SELECT 1 FROM holders h JOIN conversations c ON c.pk = h.conversation WHERE h.digest = ? AND c.live LIMIT 1;

-- set_unclean --
-- Records whether the search index may still hold deleted terms.
UPDATE search_state SET unclean = ?;

-- add_terms --
-- The terms of a message.
INSERT INTO search (rowid, words, more, owner, length) VALUES (?, ?, ?, ?, ?);

-- delete_terms --
-- Deletes the terms of a message.
DELETE FROM search WHERE rowid = ?;

-- terms_of_messages --
-- The terms of messages of a conversation by a JSON list of seqs.
SELECT m.n, m.conversation, m.segment, m.seq, m.id, m.created, c.name, c.head, c.id, s.words, s.more FROM messages m
CROSS JOIN conversations c ON c.pk = m.conversation CROSS JOIN search s ON s.rowid = m.n
WHERE m.conversation = ? AND m.seq IN (SELECT value FROM json_each(?)) AND c.live;

-- empty_search --
-- Empties the search index.
DELETE FROM search;

-- search_state --
-- Up to which number messages are in the search index, and by which analysis.
SELECT indexed, version, unclean FROM search_state;

-- set_search_state --
-- Sets the same.
UPDATE search_state SET indexed = ?, version = ?;

-- last_number --
-- The highest number.
SELECT coalesce(max(n), 0) FROM messages;

-- set_indexed --
-- Freed numbers may be assigned again, to messages that are not indexed yet.
UPDATE search_state SET indexed = min(indexed, ?);

-- to_index --
-- Messages that are not in the search index yet, their journals and their bytes.
SELECT m.n, c.name, m.length FROM messages m INDEXED BY messages_by_number JOIN conversations c ON c.pk = m.conversation
WHERE m.n > ? ORDER BY m.n LIMIT ?;

-- place_of_number --
-- The position of a message by its number, if it is unchanged.
SELECT segment, seq, created, size, offset, length, crc FROM messages WHERE conversation = ? AND n = ?;

-- number_of --
-- The position of a message by its id, and its number.
SELECT segment, seq, created, size, offset, length, crc, n FROM messages WHERE conversation = ? AND id = ?;

-- bytes_of_number --
-- Length and checksum of a message, to tell whether it is unchanged.
SELECT length, crc FROM messages WHERE n = ?;

-- count_unindexed --
-- How many messages are not in the search index yet.
SELECT count(*) FROM messages WHERE n > (SELECT indexed FROM search_state);
