-- Makes a term at least what it is elsewhere, so that no older writer gets through here either.
-- KEYS: term. ARGV: the term.
local text, term = term_at(KEYS[1])
if before(numbers(ARGV[1]), term) then return { 'fenced', text } end
redis.call('SET', KEYS[1], ARGV[1])
return { 'ok', ARGV[1] }
