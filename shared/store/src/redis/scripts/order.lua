-- Writes an order to hold or release a fleet, if the one before is still the one that was looked at.
-- KEYS: pins. ARGV: fleet, what was found there or nothing, the new value.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return { 'moved' } end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return { 'ok' }
