-- Deletes objects that nothing leads to, and the oldest steps of the history, as long as the head is the one that this was
-- found out for.
-- KEYS: term, head, objects, history. ARGV: the writer's term, the head, how many steps stay or nothing, then addresses.
local text, term = term_at(KEYS[1])
if before(numbers(ARGV[1]), term) then return { 'fenced', text } end
local found = redis.call('GET', KEYS[2])
if not found or string.match(found, '^[^\n]*') ~= ARGV[2] then return { 'moved' } end
if ARGV[3] ~= '' then redis.call('LTRIM', KEYS[4], 0, tonumber(ARGV[3]) - 1) end
if not ARGV[4] then return { 'ok', '0' } end
return { 'ok', tostring(redis.call('HDEL', KEYS[3], unpack(ARGV, 4))) }
