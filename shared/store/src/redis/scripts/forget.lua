-- Drops a tombstone, if it is still the one that was looked at, and what a crashed writer left beside it.
-- KEYS: head, history, objects, and in a Cluster the fleet's term. ARGV: the value that was looked at.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return { 'moved' } end
redis.call('DEL', unpack(KEYS))
return { 'ok' }
