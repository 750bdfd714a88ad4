-- Tells readers of a head. Nothing depends on it but how soon they know.
-- KEYS: heads, clock, term. ARGV: fleet, head, channel, the command that publishes, a wrong head that may be replaced or
-- nothing, a text that was never on the clock.
local ours = numbers(ARGV[2])
-- A store that was emptied has forgotten the claim.
local _, term = term_at(KEYS[3])
if before(term, ours) then redis.call('SET', KEYS[3], ours[1] .. '.' .. ours[2]) end
local told = redis.call('HGET', KEYS[1], ARGV[1]) or ''
-- An announcement that comes late does not hide the one after it.
if told ~= ARGV[5] and #numbers(told) == 3 and not before(numbers(told), ours) then return { 'ok' } end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[6])
return { 'ok', ring(ARGV[4], ARGV[3], ARGV[1] .. ' ' .. ARGV[2]) }
