-- What follows from a write elsewhere, done once and in order, however often and by whomever it is tried (see ops.lua).
-- Only a cluster needs it: on one server a write and what follows from it are one script.
--
-- KEYS: 1  a sorted set of this place: for each conversation, the n of its newest write that was applied here
--       …  every key that the operations name, by their numbers
-- ARGV: 1  the conversation   2  the n of the write
--       …  operations
-- Answer: {blobs that went, records that went}, also when it was applied before, but not longer than an hour.

-- Whoever still holds a write of yesterday gave up long ago (see `settling.DEADLINE`): so long is remembered, no longer.
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
