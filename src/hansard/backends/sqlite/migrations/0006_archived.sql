CREATE INDEX conversations_archived ON conversations (tenant, active_at, id) WHERE archived_at IS NOT NULL;
CREATE INDEX conversations_archived_by_update ON conversations (tenant, updated_at, id) WHERE archived_at IS NOT NULL;
