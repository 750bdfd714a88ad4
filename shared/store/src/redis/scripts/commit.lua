-- Moves a fleet to a new head, or changes nothing.
-- KEYS: term, head, history, objects, and where all is in one slot: heads, clock.
-- ARGV: the head that is expected or nothing, the new head, its value, a forged value that may be replaced or nothing, how
-- many steps of history are kept (0: this is none), whether the fleet retires (1), fleet, channel, a text that was never
-- on the clock.
local found = redis.call('GET', KEYS[2])
-- The answer was lost and the writer asks again.
if found == ARGV[3] then return { 'ok' } end

local ours = numbers(ARGV[2])
local text, term = term_at(KEYS[1])
if before(ours, term) then return { 'fenced', text } end

local at = found and string.match(found, '^[^\n]*') or ''
if not (found and found == ARGV[4]) then
  if at ~= ARGV[1] then return { 'conflict', at } end
  if at ~= '' and not before(numbers(at), ours) then return { 'old', at } end
end

-- A store that was emptied has forgotten the claim.
redis.call('SET', KEYS[1], ours[1] .. '.' .. ours[2])
-- The objects stay from here on, see stage.
if not found then redis.call('PERSIST', KEYS[4]) end
if ARGV[6] == '1' then
  redis.call('UNLINK', KEYS[3], KEYS[4])
elseif ARGV[5] ~= '0' then
  redis.call('LPUSH', KEYS[3], ARGV[3])
  redis.call('LTRIM', KEYS[3], 0, tonumber(ARGV[5]) - 1)
end
-- After what the user may lack the right to do: with the head all is done that cannot be done again.
redis.call('SET', KEYS[2], ARGV[3])
if not KEYS[5] then return { 'ok' } end
redis.call('HSET', KEYS[5], ARGV[7], ARGV[2])
redis.call('SET', KEYS[6], ARGV[9])
return { 'ok', ring('PUBLISH', ARGV[8], ARGV[7] .. ' ' .. ARGV[2]) }
