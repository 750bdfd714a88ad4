-- Tells readers of a head. Nothing depends on it but how soon they know.
-- KEYS: heads, clock, term. ARGV: fleet, head, channel, the command that publishes, a wrong head that may be replaced or
-- nothing.
local ours = numbers(ARGV[2])
local told = redis.call('HGET', KEYS[1], ARGV[1]) or ''
-- An announcement that comes late does not hide the one after it.
if told == ARGV[5] or #numbers(told) ~= 3 or before(numbers(told), ours) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
-- A store that was emptied has forgotten the claim.
local _, term = term_at(KEYS[3])
if before(term, ours) then redis.call('SET', KEYS[3], ours[1] .. '.' .. ours[2]) end
redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])
redis.call(ARGV[4], ARGV[3], ARGV[1] .. ' ' .. ARGV[2])
return { 'ok' }
