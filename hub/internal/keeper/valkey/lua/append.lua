#!lua
-- Appends a batch, once, if the fence is still the caller's and nothing is missing before it.
-- KEYS header, log   ARGV id, epoch, batch, replication id, records
-- Answers {"done"}, {"again"} if the batch was there already, or what is in the way.
local head = redis.call('HMGET', KEYS[1], 'id', 'epoch', 'batch', 'rewriting')
if not head[1] then return {'forgotten', '', ''} end
if head[1] ~= ARGV[1] then return {'foreign', head[1]} end
local epoch, batch = tonumber(head[2]), tonumber(head[3])
local own, next = tonumber(ARGV[2]), tonumber(ARGV[3])
if epoch > own then return {'deposed', head[2]} end
if epoch < own or batch < next - 1 or head[4] then return {'forgotten', head[2], head[3]} end
if batch == next then return {'again'} end
if batch > next then return {'ahead', head[3]} end
local added = redis.pcall('XADD', KEYS[2], ARGV[3] .. '-0', 'r', ARGV[5])
if type(added) == 'table' and added.err then return {'failed', added.err} end
redis.call('HSET', KEYS[1], 'batch', ARGV[3], 'replication', ARGV[4])
return {'done'}
