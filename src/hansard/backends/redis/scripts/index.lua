-- Puts messages into the search index, if they still wait as they were read (see index.py). Not for a cluster.
--
-- KEYS: 1  the messages that wait for the index: a sorted set   2  the index's state, which counts the messages that were changed since
-- ARGV: for each message: its member of that set   its score   the key of its segment   its seq   the SHA-1 of its bytes
--       the key of its hash   how many fields and values follow   the fields and values in turn
-- Answer: how many were put.

local put, at = 0, 1
while at <= #ARGV do
  local member, score, segment, seq, digest, entry, count = unpack(ARGV, at, at + 6)
  -- A message that does not wait was indexed or removed since, maybe with its tenant's index. Another score means that it
  -- waits again, so what is put may be outdated, but not for long.
  local waits = redis.call('ZSCORE', KEYS[1], member)
  if waits then
    local stored = redis.call('ZRANGEBYSCORE', segment, seq, seq)[1]
    if stored and redis.sha1hex(stored) == digest then
      redis.call('HSET', entry, unpack(ARGV, at + 7, at + 6 + tonumber(count)))
      put = put + 1
    elseif stored and redis.call('EXISTS', KEYS[2]) == 1 then
      redis.call('HINCRBY', KEYS[2], 'replaced', 1)
    end
    if waits == score then redis.call('ZREM', KEYS[1], member) end
  end
  at = at + 7 + tonumber(count)
end
return put
