#!lua flags=allow-oom
-- Says from when on the journal is whole.
-- KEYS header   ARGV id, epoch, since
local head = redis.call('HMGET', KEYS[1], 'id', 'epoch')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then return {'deposed', head[2] or '0'} end
redis.call('HSET', KEYS[1], 'since', ARGV[3], 'whole', '0')
return {'done'}
