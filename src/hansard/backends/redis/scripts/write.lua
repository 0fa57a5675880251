-- One atomic write: runs the operations (see ops.lua) if all checks still hold.
--
-- KEYS: every key that the checks and the operations name, by their numbers.
-- ARGV: 1  the time, in seconds of this server's clock, after which the write may no longer happen; '' for none
--       2  how many checks follow; each is the number of a hash's key, a field, and its value; '' for no such field
--       …  operations
-- Answer: {0, blobs removed, records removed}, or {the number of the first check that failed} with nothing changed;
--         {-1} after the deadline.

if ARGV[1] ~= '' and tonumber(redis.call('TIME')[1]) > tonumber(ARGV[1]) then return { -1 } end
local at = 3
for check = 1, tonumber(ARGV[2]) do
  local found = redis.call('HGET', KEYS[tonumber(ARGV[at])], ARGV[at + 1]) or ''
  if found ~= ARGV[at + 2] then return { check } end
  at = at + 3
end
run(at)
return { 0, blobs, records }
