-- Writes objects of a fleet that has no head yet. If none ever comes, because the writer crashed, they go by themselves.
-- KEYS: head, objects. ARGV: for how many milliseconds they stay, then addresses, each with its value.
redis.call('HSET', KEYS[2], unpack(ARGV, 2))
if not redis.call('GET', KEYS[1]) then redis.call('PEXPIRE', KEYS[2], ARGV[1]) end
return { 'ok' }
