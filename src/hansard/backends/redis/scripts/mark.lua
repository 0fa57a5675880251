-- Announces a write to several hash slots of a cluster, so that any process that needs them can finish it.
--
-- KEYS: 1  the marks of a tenant: a hash
-- ARGV: 1  how many seconds the write may take   2  the mark's name   3  its content
-- Answer: the time until which the write may happen, in seconds of this server's clock.

local deadline = tonumber(redis.call('TIME')[1]) + tonumber(ARGV[1])
redis.call('HSET', KEYS[1], ARGV[2], deadline .. ' ' .. ARGV[3])
return deadline
