-- Numbers are decimal strings, because Lua's are doubles and fences have up to 39 digits.
local function less(one, other)
  if #one ~= #other then return #one < #other end
  return one < other
end

-- Whether one list of numbers comes before another. A head has one number more than a term, which does not count then.
local function before(one, other)
  for i = 1, math.min(#one, #other) do
    if less(one[i], other[i]) then return true end
    if less(other[i], one[i]) then return false end
  end
  return false
end

local function numbers(text)
  local found = {}
  for number in string.gmatch(text or '', '%d+') do found[#found + 1] = number end
  return found
end

-- The newest term that has begun, as text and as numbers.
local function term_at(key)
  local text = redis.call('GET', key) or '0.0'
  local term = numbers(text)
  return text, { term[1] or '0', term[2] or '0' }
end

-- Rings the bell, which is only a hint: if it cannot be rung, what was written stays. Returns why, or nothing.
local function ring(command, channel, message)
  local rung = redis.pcall(command, channel, message)
  return type(rung) == 'table' and rung.err or ''
end
