ALTER TABLE messages ADD COLUMN pinned INTEGER;

UPDATE messages SET pinned = 1
WHERE extra LIKE '%"pinned":true%' AND CASE WHEN json_valid(extra) THEN json_extract(extra, '$.pinned') END;

CREATE INDEX messages_pinned ON messages (key) WHERE pinned;
