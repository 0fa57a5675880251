-- Applies the effects of a write in one hash slot, once and in order, even if several processes call it (see ops.lua).
-- Only a cluster needs it: on one server a write and its effects are one script.
--
-- KEYS: 1  a sorted set of this slot: for each conversation, the n of its newest write that was applied here
--       …  every key that the operations name, by their numbers
-- ARGV: 1  the conversation   2  the n of the write
--       …  operations
-- Answer: {blobs removed, records removed}, also if it was applied before, for up to an hour.

-- Applied writes are remembered for a day: a writer gives up long before that (see `settling.DEADLINE`).
local DAY = 86400
-- How long a writer may take from its commit to its receipt.
local HOUR = 3600

local applied = redis.call('ZSCORE', KEYS[1], ARGV[1])
local gone = KEYS[1] .. ':' .. ARGV[2] .. ':' .. ARGV[1]
if applied and tonumber(applied) >= tonumber(ARGV[2]) then
  local went = redis.call('GET', gone) or '0 0'
  local first, second = string.match(went, '(%d+) (%d+)')
  return { tonumber(first), tonumber(second) }
end
run(3)
if blobs + records > 0 then redis.call('SET', gone, blobs .. ' ' .. records, 'EX', HOUR) end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', tonumber(ARGV[2]) - DAY * 1000000)
redis.call('EXPIRE', KEYS[1], DAY)
return { blobs, records }
