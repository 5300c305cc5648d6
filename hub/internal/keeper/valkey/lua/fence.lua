#!lua flags=allow-oom
-- Takes the fence: makes the header if there is none, and counts up the epoch.
-- KEYS header, log, lists   ARGV layout, owner, now, since, whole, replication id, least epoch, new id
-- Answers {"taken", made, epoch before, interrupted, field, value, ...}, or what is in the way.
local want = {'hash', 'stream', 'list', 'list'}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= want[i] then return {'foreign', key, kind, want[i]} end
end
local made = 0
if redis.call('EXISTS', KEYS[1]) == 0 then
  for i = 2, 4 do
    if redis.call('EXISTS', KEYS[i]) == 1 then return {'headless', KEYS[i]} end
  end
  redis.call('HSET', KEYS[1], 'layout', ARGV[1], 'id', ARGV[8], 'owner', ARGV[2], 'epoch', '0', 'batch', '0', 'since', ARGV[4],
    'whole', ARGV[5], 'replication', ARGV[6], 'generation', '0', 'chunks', '0', 'records', '0', 'from', '1')
  made = 1
end
local head = redis.call('HMGET', KEYS[1], 'layout', 'owner', 'epoch', 'replication', 'rewriting')
if head[1] ~= ARGV[1] then return {'layout', head[1] or ''} end
if head[2] ~= ARGV[2] then return {'owner', head[2] or ''} end
local before = tonumber(head[3])
if not before then return {'damaged', 'epoch'} end
local epoch = math.max(before + 1, tonumber(ARGV[3]), tonumber(ARGV[7]) + 1)
redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', epoch), 'replication', ARGV[6])
local interrupted = 0
if head[4] ~= ARGV[6] or head[5] then
  interrupted = 1
  redis.call('HSET', KEYS[1], 'since', ARGV[4], 'whole', '0')
  redis.call('HDEL', KEYS[1], 'rewriting')
end
local answer = {'taken', made, string.format('%.0f', before), interrupted}
for _, part in ipairs(redis.call('HGETALL', KEYS[1])) do answer[#answer + 1] = part end
return answer
