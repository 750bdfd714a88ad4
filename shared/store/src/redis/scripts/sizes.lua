-- How large objects are.
-- KEYS: objects. ARGV: addresses.
local sizes = {}
for i = 1, #ARGV do sizes[i] = tostring(redis.call('HSTRLEN', KEYS[1], ARGV[i])) end
return sizes
