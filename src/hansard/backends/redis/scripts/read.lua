-- Reads a conversation's head, if the reader does not know it yet, and the answers of other commands, atomically.
--
-- KEYS: 1  the head   …  every key that the commands name, by their numbers
-- ARGV: 1  n and write of the head that the reader knows, '' for none
--       …  commands: a name, the number of a key, how many values follow, the values.
--          `find` gets the root of the conversation's keys and ids of messages; `pinned` gets the root, a segment, and a
--          command with values for the segment's pinned seqs; `span` gets the root, a segment, and two seqs; `last` gets the
--          root, how many segments follow, the segments, how many ids follow, the ids of messages, and runs of messages, each
--          a segment and two seqs; any other is a command of Redis. Of two seqs, the first is before the messages meant.
-- Answer: {the head as fields and values in turn, or false when the reader knows it, the answer of each command, …}.
--         An empty head means that there is no such conversation.
--         `find` answers with the place (its segment and seq) and the message of each id, both false for a missing message.
--         `pinned` answers with the messages of the seqs that its command returns.
--         `span` answers with how many messages there are between the seqs, and the first and the last seq of them.
--         `last` answers with the newest message on these segments that is none of these ids and in none of the runs.

-- Each of these gets its key, and where its values begin and end in ARGV: there may be more than a call can take.

local function find(root, from, to)
  local found = {}
  for at = from, to do
    local place = redis.call('HGET', root .. ':ids', ARGV[at])
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

local function pinned(root, from, to)
  local line, command, found = ARGV[from], ARGV[from + 1], {}
  for _, seq in ipairs(redis.call(command, root .. ':pinned:' .. line, unpack(ARGV, from + 2, to))) do
    found[#found + 1] = redis.call('ZRANGEBYSCORE', root .. ':messages:' .. line, seq, seq)[1]
  end
  return found
end

local function span(root, from)
  local key, low, upto = root .. ':messages:' .. ARGV[from], '(' .. ARGV[from + 1], ARGV[from + 2]
  local first = redis.call('ZRANGEBYSCORE', key, low, upto, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local last = redis.call('ZREVRANGEBYSCORE', key, upto, low, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return { redis.call('ZCOUNT', key, low, upto), first or '0', last or '0' }
end

-- The newest message of a segment that is not left out, and its seq. `without` has the seqs of messages by themselves.
local function newest(key, without, runs)
  local upto = '+inf'
  while true do
    local message, seq = unpack(redis.call('ZREVRANGEBYSCORE', key, upto, '-inf', 'WITHSCORES', 'LIMIT', 0, 1))
    if not message then return nil, -1 end
    upto = without[seq] and '(' .. seq
    for _, run in ipairs(runs) do
      if tonumber(seq) > run[1] and tonumber(seq) <= run[2] then upto = run[1] end
    end
    if not upto then return message, tonumber(seq) end
  end
end

local function last(root, from, to)
  local without, runs = {}, {}
  local lines = tonumber(ARGV[from])
  local ids = from + lines + 1
  local rest = ids + tonumber(ARGV[ids]) + 1
  for at = from + 1, ids - 1 do without[ARGV[at]], runs[ARGV[at]] = {}, {} end
  for at = ids + 1, rest - 1 do
    local line, seq = string.match(redis.call('HGET', root .. ':ids', ARGV[at]) or '', '(%d+) (%d+)')
    if line and without[line] then without[line][seq] = true end
  end
  for at = rest, to, 3 do
    local of_line = runs[ARGV[at]]
    if of_line then of_line[#of_line + 1] = { tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]) } end
  end
  local found, found_seq = false, -1
  for at = from + 1, ids - 1 do
    local message, seq = newest(root .. ':messages:' .. ARGV[at], without[ARGV[at]], runs[ARGV[at]])
    if seq > found_seq then found, found_seq = message, seq end
  end
  return found
end

local scripted = { find = find, pinned = pinned, span = span, last = last }
local answers = { false }
local n, write = unpack(redis.call('HMGET', KEYS[1], 'n', 'write'))
if not n or n .. ' ' .. (write or '') ~= ARGV[1] then answers[1] = redis.call('HGETALL', KEYS[1]) end
local at = 2
while at <= #ARGV do
  local name, key, count = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  if scripted[name] then
    answers[#answers + 1] = scripted[name](key, at + 3, at + 2 + count)
  else
    answers[#answers + 1] = redis.call(name, key, unpack(ARGV, at + 3, at + 2 + count))
  end
  at = at + 3 + count
end
return answers
