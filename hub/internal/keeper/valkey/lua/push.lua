#!lua
-- Adds a part of a snapshot to the list that is not in use.
-- KEYS header, list   ARGV id, epoch, place, part
-- A part that is there already was pushed by a call whose answer was lost.
local head = redis.call('HMGET', KEYS[1], 'id', 'epoch')
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then return {'deposed', head[2] or '0'} end
local have, place = redis.call('LLEN', KEYS[2]), tonumber(ARGV[3])
if have == place + 1 then return {'again'} end
if have ~= place then return {'forgotten', '', ''} end
local pushed = redis.pcall('RPUSH', KEYS[2], ARGV[4])
if type(pushed) == 'table' and pushed.err then return {'failed', pushed.err} end
return {'done'}
