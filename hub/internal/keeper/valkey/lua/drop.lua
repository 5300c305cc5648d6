#!lua flags=allow-oom
-- Empties a list that is not in use.
-- KEYS header, list   ARGV id, epoch
local head = redis.call('HMGET', KEYS[1], 'id', 'epoch')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then return {'deposed', head[2] or '0'} end
redis.call('DEL', KEYS[2])
return {'done'}
