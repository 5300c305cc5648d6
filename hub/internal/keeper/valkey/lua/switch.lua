#!lua flags=allow-oom
-- Makes a snapshot count and drops what it stands for. With ARGV[8] it also says that the journal is whole again.
-- KEYS header, log, new list, old list
-- ARGV id, epoch, generation, parts, records, first batch after it, replication id, rewritten: last batch or '', since, whole
local head = redis.call('HMGET', KEYS[1], 'id', 'epoch', 'generation')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then return {'deposed', head[2] or '0'} end
if head[3] == ARGV[3] then return {'again'} end
if redis.call('LLEN', KEYS[3]) ~= tonumber(ARGV[4]) then return {'forgotten', '', ''} end
local set = redis.pcall('HSET', KEYS[1], 'generation', ARGV[3], 'chunks', ARGV[4], 'records', ARGV[5], 'from', ARGV[6])
if type(set) == 'table' and set.err then return {'failed', set.err} end
if ARGV[8] ~= '' then
  redis.call('HSET', KEYS[1], 'batch', ARGV[8], 'since', ARGV[9], 'whole', ARGV[10], 'replication', ARGV[7])
  redis.call('HDEL', KEYS[1], 'rewriting')
  redis.call('DEL', KEYS[2])
else
  redis.call('XTRIM', KEYS[2], 'MINID', ARGV[6] .. '-0')
end
redis.call('UNLINK', KEYS[4])
return {'done'}
