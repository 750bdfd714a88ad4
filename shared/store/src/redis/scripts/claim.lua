-- Begins a term.
-- KEYS: term. ARGV: the fence, or nothing where no election gave one; the time in milliseconds.
local function following(number)
  local digits, carry = '', 1
  for i = #number, 1, -1 do
    local digit = string.byte(number, i) - 48 + carry
    carry = digit > 9 and 1 or 0
    digits = string.char(48 + digit % 10) .. digits
  end
  return carry == 1 and '1' .. digits or digits
end

local text, term = term_at(KEYS[1])
local fence = ARGV[1]
if fence == '' then
  fence = ARGV[2]
  if not less(term[2], fence) then fence = following(term[2]) end
  -- Above this there is no fence: only a new epoch helps.
  if less('340282366920938463463374607431768211455', fence) then return { 'fenced', text } end
elseif less(fence, term[2]) then
  return { 'fenced', text }
end
local claimed = term[1] .. '.' .. fence
redis.call('SET', KEYS[1], claimed)
return { 'ok', claimed }
