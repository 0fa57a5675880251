-- The entries of the index in the order of time, with the lengths of their messages: the index is rebuilt.
CREATE TABLE search_entries (
    entry INTEGER PRIMARY KEY,
    message INTEGER NOT NULL,
    words INTEGER NOT NULL
) STRICT;

CREATE INDEX branches_forked ON branches (conversation) WHERE count IS NOT NULL OR path IS NOT NULL;
