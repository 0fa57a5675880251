-- A conversation's head, if its reader does not know it yet, and what else is asked of it, at one moment.
--
-- KEYS: 1  the head   …  every key that the commands name, by their numbers
-- ARGV: 1  the n of the head that the reader knows, '' for none
--       …  commands: a name, the number of a key, how many values follow, the values.
--          `find` gets the root of the conversation's keys and ids of messages; `pinned` gets the root, a line, and a
--          command with values for the line's pinned seqs; any other is a command of Redis.
-- Answer: {the head as fields and values in turn, or false when the reader knows it, the answer of each command, …}.
--         An empty head means that there is no such conversation.
--         `find` answers with the place (its line and seq) and the message of each id, both false for one that is not there.
--         `pinned` answers with the messages of the seqs that its command gives.

local function find(root, ...)
  local found = {}
  for _, id in ipairs({ ... }) do
    local place = redis.call('HGET', root .. ':ids', id)
    local message = false
    if place then
      local line, seq = string.match(place, '(%d+) (%d+)')
      message = redis.call('ZRANGEBYSCORE', root .. ':messages:' .. line, seq, seq)[1] or false
    end
    found[#found + 1] = place
    found[#found + 1] = message
  end
  return found
end

local function pinned(root, line, command, ...)
  local found = {}
  for _, seq in ipairs(redis.call(command, root .. ':pinned:' .. line, ...)) do
    found[#found + 1] = redis.call('ZRANGEBYSCORE', root .. ':messages:' .. line, seq, seq)[1]
  end
  return found
end

local answers = { false }
local n = redis.call('HGET', KEYS[1], 'n') or ''
if n == '' or n ~= ARGV[1] then answers[1] = redis.call('HGETALL', KEYS[1]) end
local at = 2
while at <= #ARGV do
  local name, key, count = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  if name == 'find' then
    answers[#answers + 1] = find(key, unpack(ARGV, at + 3, at + 2 + count))
  elseif name == 'pinned' then
    answers[#answers + 1] = pinned(key, unpack(ARGV, at + 3, at + 2 + count))
  else
    answers[#answers + 1] = redis.call(name, key, unpack(ARGV, at + 3, at + 2 + count))
  end
  at = at + 3 + count
end
return answers
