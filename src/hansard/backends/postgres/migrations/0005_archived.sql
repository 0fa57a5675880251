CREATE INDEX conversations_archived ON hansard.conversations (tenant, active_at, id) WHERE archived_at IS NOT NULL;
CREATE INDEX conversations_archived_by_update ON hansard.conversations (tenant, updated_at, id)
    WHERE archived_at IS NOT NULL;
