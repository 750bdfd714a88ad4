-- Replaces sealed bodies by the same, sealed with another key. What was deleted meanwhile stays so.
-- KEYS: term, objects. ARGV: the writer's term, then addresses, each with its new value.
local text, term = term_at(KEYS[1])
if before(numbers(ARGV[1]), term) then return { 'fenced', text } end
local count = 0
for i = 2, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    count = count + 1
  end
end
return { 'ok', tostring(count) }
