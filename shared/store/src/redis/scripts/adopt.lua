-- Begins an epoch, if the term is still the one that the operator saw.
-- KEYS: term. ARGV: the term that was seen, the new one.
local text = term_at(KEYS[1])
if text ~= ARGV[1] then return { 'moved', text } end
redis.call('SET', KEYS[1], ARGV[2])
return { 'ok', ARGV[2] }
