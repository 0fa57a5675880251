-- The operations of a write on keys. This file is loaded before write.lua and apply.lua, and runs nothing by itself.
--
-- An operation is: its name, the number of its key in KEYS, how many values follow, the values. An operation with a name
-- in small letters is one of those below; any other name is a command of Redis, which gets the key and the values.
-- Keys that an operation derives from its key have the same hash slot.
--
-- Errors: those of the commands. The first command of a script that the server refuses (out of memory, a replica, a full
-- disk) is refused before any write; after the first write the server refuses no command for these reasons.

local blobs, records = 0, 0
local operations = {}

-- A conversation's position in a list.   key: sorted set;   values: the old member or '', the new one or ''
function operations.move(key, old, new)
  if old ~= '' then redis.call('ZREM', key, old) end
  if new ~= '' then redis.call('ZADD', key, 0, new) end
end

-- Bytes, kept at least until a time.     key: bucket;       values: SHA-256, bytes, time in microseconds
function operations.keep(bucket, sha256, bytes, time)
  redis.call('SETNX', bucket .. ':data:' .. sha256, bytes)
  redis.call('ZADD', bucket .. ':kept', 'GT', time, sha256)
  if redis.call('EXISTS', bucket .. ':uses:' .. sha256) == 0 then
    redis.call('ZADD', bucket .. ':idle', 'GT', time, sha256)
  end
end

-- A conversation refers to a blob. The use keeps its highest n: a lower one belongs to a write that was overtaken, and
-- a release between the two must not remove it.
--                                        key: bucket;       values: SHA-256, conversation, its n
function operations.use(bucket, sha256, conversation, n)
  local used = redis.call('HGET', bucket .. ':uses:' .. sha256, conversation)
  if not used or tonumber(used) < tonumber(n) then
    redis.call('HSET', bucket .. ':uses:' .. sha256, conversation, n)
  end
  redis.call('ZREM', bucket .. ':idle', sha256)
end

-- A conversation no longer refers to a blob, which is removed when unused and its time is over. An n that is lower
-- than that of the use belongs to a late release: the conversation has referred to the blob again since.
--                                        key: bucket;       values: SHA-256, conversation or '', its n, now
function operations.release(bucket, sha256, conversation, n, now)
  local uses, data = bucket .. ':uses:' .. sha256, bucket .. ':data:' .. sha256
  local used = redis.call('HGET', uses, conversation)
  if used and tonumber(used) <= tonumber(n) then redis.call('HDEL', uses, conversation) end
  if redis.call('EXISTS', uses) == 1 then return end
  local time = redis.call('ZSCORE', bucket .. ':kept', sha256)
  if not time then return end
  if tonumber(time) > tonumber(now) then
    redis.call('ZADD', bucket .. ':idle', time, sha256)
    return
  end
  redis.call('DEL', data)
  redis.call('ZREM', bucket .. ':kept', sha256)
  redis.call('ZREM', bucket .. ':idle', sha256)
  blobs = blobs + 1
end

-- Removes a use that a write announced and did not make, unless another write has announced it since. The blob stays until it is
-- released, or until a sweep.            key: bucket;       values: SHA-256, conversation, n of the write
function operations.undo(bucket, sha256, conversation, n)
  local uses = bucket .. ':uses:' .. sha256
  if redis.call('HGET', uses, conversation) ~= n then return end
  redis.call('HDEL', uses, conversation)
  local time = redis.call('ZSCORE', bucket .. ':kept', sha256)
  if time and redis.call('EXISTS', uses) == 0 then redis.call('ZADD', bucket .. ':idle', time, sha256) end
end

-- Gives later writes of a conversation higher stamps. Without a head, its grave keeps the stamp.
--                                        key: root;         values: n
function operations.raise(root, n)
  local key = redis.call('EXISTS', root .. ':head') == 1 and root .. ':head' or root .. ':graves'
  local last = redis.call('HGET', key, 'n')
  if not last or tonumber(last) < tonumber(n) then redis.call('HSET', key, 'n', n) end
end

-- Removes a record with its conversation, unless it no longer belongs to it.
--                                        key: records;      values: the record's name, the conversation and its birth
function operations.drop(space, name, link)
  if redis.call('HGET', space .. ':links', name) ~= link then return end
  for _, part in ipairs({ ':links', ':tokens', ':data' }) do redis.call('HDEL', space .. part, name) end
  redis.call('ZREM', space .. ':names', name)
  redis.call('ZREM', space .. ':expiring', name)
  records = records + 1
end

-- Tombstones; an existing one keeps the later time.
--                                        key: hash;         values: digests and times in turn
function operations.bury(key, ...)
  local values = { ... }
  for at = 1, #values, 2 do
    local known = redis.call('HGET', key, values[at])
    if not known or tonumber(known) < tonumber(values[at + 1]) then
      redis.call('HSET', key, values[at], values[at + 1])
    end
  end
end

-- Removes a mark that is not renewed.    key: hash;         values: field, n
function operations.forget(key, field, n)
  local marked = redis.call('HGET', key, field)
  if marked and tonumber(marked) <= tonumber(n) then redis.call('HDEL', key, field) end
end

-- Moves or removes a member of an index, if it is still where it was found.
--                                        key: sorted set;   values: member, score found, new score or ''
function operations.correct(key, member, found, score)
  if redis.call('ZSCORE', key, member) ~= found then return end
  if score == '' then redis.call('ZREM', key, member) else redis.call('ZADD', key, score, member) end
end

-- Removes a member of an index that names a missing key.
--                                        key: sorted set;   values: member, key in the same place
function operations.unlist(key, member, named)
  if redis.call('EXISTS', named) == 0 then redis.call('ZREM', key, member) end
end

-- Tokens and cost, added up.             key: hash of a day; values: field, messages, four kinds of tokens, cost
-- All are doubles, as in Python.
function operations.count(key, field, ...)
  local more, sums = { ... }, {}
  local now = redis.call('HGET', key, field) or '0 0 0 0 0 0'
  for number in string.gmatch(now, '%S+') do
    sums[#sums + 1] = string.format('%.17g', tonumber(number) + tonumber(more[#sums + 1]))
  end
  redis.call('HSET', key, field, table.concat(sums, ' '))
end

-- The search index (see index.py) has a hash for each message, <entries>:<segment>:<seq>. Messages whose hash is not
-- there yet, or outdated, wait in a sorted set; members are `<segment> <seq> <conversation>`, scores the n of the write.

-- Messages wait for the index of a tenant, if it has one.
--                                        key: sorted set;   values: the index's state, conversation, n, places
function operations.queue(key, state, conversation, n, ...)
  if redis.call('EXISTS', state) == 0 then return end
  for _, place in ipairs({ ... }) do redis.call('ZADD', key, n, place .. ' ' .. conversation) end
end

-- All messages of a conversation wait.   key: sorted set;   values: the index's state, conversation, n, its ids' key
function operations.queue_all(key, state, conversation, n, ids)
  if redis.call('EXISTS', state) == 0 then return end
  for _, place in ipairs(redis.call('HVALS', ids)) do redis.call('ZADD', key, n, place .. ' ' .. conversation) end
end

-- Those that do not wait yet, too: the others keep their turn, for which a search may be waiting.
--                                        key: sorted set;   values: conversation, n, its ids' key
function operations.queue_others(key, conversation, n, ids)
  for _, place in ipairs(redis.call('HVALS', ids)) do redis.call('ZADD', key, 'NX', n, place .. ' ' .. conversation) end
end

local function unindex(key, entries, conversation, place)
  redis.call('DEL', entries .. ':' .. string.gsub(place, ' ', ':'))
  redis.call('ZREM', key, place .. ' ' .. conversation)
end

-- Removes messages from the index.       key: sorted set;   values: entries, conversation, places
function operations.unindex(key, entries, conversation, ...)
  for _, place in ipairs({ ... }) do unindex(key, entries, conversation, place) end
end

-- Removes a message whose text is replaced from the index; it waits with its new text. The state counts them, for the
-- searches that look for the message meanwhile.
--                                        key: sorted set;   values: the index's state, entries, conversation, n, place
function operations.replace(key, state, entries, conversation, n, place)
  unindex(key, entries, conversation, place)
  if redis.call('EXISTS', state) == 0 then return end
  redis.call('ZADD', key, n, place .. ' ' .. conversation)
  redis.call('HINCRBY', state, 'replaced', 1)
end

-- Removes all messages of a conversation from the index. The tenant may have lost the state of its index since they were
-- indexed.                               key: sorted set;   values: entries, conversation, its ids' key
function operations.unindex_all(key, entries, conversation, ids)
  for _, place in ipairs(redis.call('HVALS', ids)) do unindex(key, entries, conversation, place) end
end

-- Runs the operations that begin at this index of ARGV.
local function run(at)
  while at <= #ARGV do
    local name, key, count = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
    local operation = operations[name]
    if operation then
      operation(key, unpack(ARGV, at + 3, at + 2 + count))
    else
      redis.call(name, key, unpack(ARGV, at + 3, at + 2 + count))
    end
    at = at + 3 + count
  end
end
