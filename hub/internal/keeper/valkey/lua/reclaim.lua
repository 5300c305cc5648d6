#!lua flags=allow-oom
-- Prepares a server that has forgotten something for the leader's whole state. Until that counts, the header says that the
-- journal is not to be believed.
-- KEYS header, log, lists   ARGV id, epoch, layout, owner, since, replication id
-- Answers {"done", generation in use}.
local want = {'hash', 'stream', 'list', 'list'}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= want[i] then return {'foreign', key, kind, want[i]} end
end
local head = redis.call('HMGET', KEYS[1], 'id', 'epoch', 'generation')
if not head[1] then
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  head[3] = '0'
  local set = redis.pcall('HSET', KEYS[1], 'layout', ARGV[3], 'id', ARGV[1], 'owner', ARGV[4], 'epoch', ARGV[2], 'batch', '0', 'since', ARGV[5],
    'whole', '0', 'replication', ARGV[6], 'generation', '0', 'chunks', '0', 'records', '0', 'from', '1', 'rewriting', '1')
  if type(set) == 'table' and set.err then return {'failed', set.err} end
  return {'done', '0'}
end
if head[1] ~= ARGV[1] then return {'foreign', head[1]} end
if tonumber(head[2]) > tonumber(ARGV[2]) then return {'deposed', head[2]} end
local set = redis.pcall('HSET', KEYS[1], 'epoch', ARGV[2], 'rewriting', '1')
if type(set) == 'table' and set.err then return {'failed', set.err} end
return {'done', head[3]}
