CREATE INDEX conversations_that_expire ON conversations (tenant) WHERE expires_at IS NOT NULL;
CREATE INDEX messages_by_participant ON messages (participant) WHERE participant IS NOT NULL;
