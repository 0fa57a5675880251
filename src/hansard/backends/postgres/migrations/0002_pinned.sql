ALTER TABLE hansard.messages ADD COLUMN pinned boolean NOT NULL DEFAULT false;

-- A NUL in a string of JSON is no text to PostgreSQL, whichever string is asked for: another character stands in.
UPDATE hansard.messages SET pinned = true
WHERE extra LIKE '%"pinned":true%' AND replace(extra, '\u0000', '\u0001')::json ->> 'pinned' = 'true';

CREATE INDEX messages_pinned ON hansard.messages (tenant, conversation, line, seq) WHERE pinned;
