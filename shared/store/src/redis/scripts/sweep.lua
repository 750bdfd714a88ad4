-- Deletes objects that nothing leads to, as long as the head is the one that this was found out for.
-- KEYS: term, head, objects. ARGV: the writer's term, the head, then addresses.
local text, term = term_at(KEYS[1])
if before(numbers(ARGV[1]), term) then return { 'fenced', text } end
local found = redis.call('GET', KEYS[2])
if not found or string.match(found, '^[^\n]*') ~= ARGV[2] then return { 'moved' } end
return { 'ok', tostring(redis.call('HDEL', KEYS[3], unpack(ARGV, 3))) }
