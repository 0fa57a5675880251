-- The lengths of messages, by which they are ranked: the index is rebuilt.
ALTER TABLE hansard.search ADD COLUMN words integer NOT NULL DEFAULT 0;
