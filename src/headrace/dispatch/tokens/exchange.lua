-- One exchange of a node with the token table: changes, offers to collect, an ask, queries.
-- The rules of token_table.py and scheduler.py; tests/dispatch/tokens/test_same.py compares them.
--
-- KEYS: meta (hash: born, born_ms, turns, last_pass, places), tokens (hash: partition ->
-- "state epoch next_offset until_ms node"), idle and offered (sorted sets: partition by the order
-- of coming), waiting (hash: node -> "want weight pass turn"). The list PREFIX..offers:NODE, which
-- has the same hash tag, holds what NODE may collect, as "partition epoch next_offset".
local META, TOKENS, IDLE, OFFERED, WAITING = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, node, now_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease_ms, offer_ms, policy = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local want, weight, born = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local changes = tonumber(ARGV[10])
local STRIDE = 720720

if not now_ms then
  local time = redis.call('TIME')
  now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

if redis.call('HSETNX', META, 'born', born) == 1 then
  redis.call('HSET', META, 'born_ms', whole(now_ms))
end
local meta = redis.call('HMGET', META, 'born', 'born_ms', 'turns', 'last_pass', 'places')
local turns, last_pass = tonumber(meta[3] or 0), tonumber(meta[4] or 0)
local places = tonumber(meta[5] or 0)

-- Tokens

local function entry_of(partition)
  local text = redis.call('HGET', TOKENS, partition)
  if not text then
    return nil
  end
  local state, epoch, next_offset, until_ms, holder =
    string.match(text, '^(%a+) (%d+) (%d+) (%d+) (.*)$')
  if not state then
    -- No node has written this: treat it as missing.
    redis.call('HDEL', TOKENS, partition)
    redis.call('ZREM', IDLE, partition)
    redis.call('ZREM', OFFERED, partition)
    return nil
  end
  return {
    state = state, epoch = tonumber(epoch), next_offset = tonumber(next_offset),
    until_ms = tonumber(until_ms), node = holder,
  }
end

local function token(partition, entry)
  return partition .. ' ' .. whole(entry.epoch) .. ' ' .. whole(entry.next_offset)
end

local function place(partition, old, state, epoch, next_offset, holder, until_ms)
  if old and old.state == 'idle' then
    redis.call('ZREM', IDLE, partition)
  elseif old and old.state == 'offered' then
    redis.call('ZREM', OFFERED, partition)
    redis.call('LREM', prefix .. 'offers:' .. old.node, 0, token(partition, old))
  end
  redis.call('HSET', TOKENS, partition, table.concat(
    {state, whole(epoch), whole(next_offset), whole(until_ms), holder}, ' '))
  if state == 'idle' or state == 'offered' then
    places = places + 1
    redis.call('ZADD', state == 'idle' and IDLE or OFFERED, places, partition)
  end
end

local function compare(epoch, next_offset, entry)
  if epoch ~= entry.epoch then
    return epoch < entry.epoch and -1 or 1
  end
  return next_offset == entry.next_offset and 0 or (next_offset < entry.next_offset and -1 or 1)
end

local function change(kind, partition, epoch, next_offset)
  local entry = entry_of(partition)
  local order = entry and compare(epoch, next_offset, entry) or 1
  if kind == 'put' or kind == 'force put' then
    if order <= 0 and kind == 'put' then
      return order == 0 and 'repeated' or 'stale'
    end
    place(partition, entry, 'idle', epoch, next_offset, '', 0)
  elseif kind == 'renew' or kind == 'force renew' then
    local is_over = order < 0 or (order == 0 and entry.state == 'revoked')
    if is_over and kind == 'renew' then
      return 'stale'
    end
    place(partition, entry, 'out', epoch, next_offset, node, now_ms + lease_ms)
  elseif kind == 'revoke' then
    if order < 0 then
      return 'stale'
    end
    place(partition, entry, 'revoked', epoch, next_offset, '', 0)
  else
    -- An offer that was collected by a wait is still marked as offered.
    local is_held = entry and (entry.state == 'out' or entry.state == 'offered')
    if not is_held or order ~= 0 or entry.node ~= node then
      return 'stale'
    end
    place(partition, entry, 'idle', epoch, next_offset, '', 0)
  end
  return 'ok'
end

-- Waiting nodes

local waiters, count, changed = {}, 0, {}
do
  local all = redis.call('HGETALL', WAITING)
  for i = 1, #all, 2 do
    local w, k, p, t = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    if w and tonumber(k) > 0 then
      waiters[all[i]] = {
        want = tonumber(w), weight = tonumber(k), pass = tonumber(p), turn = tonumber(t),
      }
      count = count + 1
    else
      changed[all[i]] = true
    end
  end
end

local function forget(name)
  if waiters[name] then
    waiters[name], count = nil, count - 1
    changed[name] = true
  end
end

local function ask(name, wanted, its_weight)
  if wanted < 1 then
    forget(name)
    return
  end
  local waiter = waiters[name]
  if waiter then
    waiter.want, waiter.weight = wanted, its_weight
  else
    if count == 0 then
      last_pass = 0
    end
    turns = turns + 1
    waiters[name] = {
      want = wanted, weight = its_weight, pass = last_pass + STRIDE / its_weight, turn = turns,
    }
    count = count + 1
  end
  changed[name] = true
end

local function serve()
  local best
  for name, waiter in pairs(waiters) do
    local other = best and waiters[best]
    if not other
      or (policy == 'fair' and waiter.pass < other.pass)
      or ((policy ~= 'fair' or waiter.pass == other.pass) and waiter.turn < other.turn) then
      best = name
    end
  end
  local waiter = waiters[best]
  changed[best] = true
  if policy == 'fair' then
    turns = turns + 1
    waiter.turn, last_pass = turns, waiter.pass
    waiter.pass = waiter.pass + STRIDE / waiter.weight
  end
  waiter.want = waiter.want - 1
  if waiter.want < 1 then
    forget(best)
  end
  return best
end

-- The exchange itself

local verdicts, granted, seen = {}, {}, {}
local at = 11
for i = 1, changes do
  verdicts[i] = change(ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
  at = at + 4
end

local function lend(partition, entry)
  granted[#granted + 1] = token(partition, entry)
  place(partition, entry, 'out', entry.epoch, entry.next_offset, node, now_ms + lease_ms)
end

local mine = prefix .. 'offers:' .. node
local offer = redis.call('LPOP', mine)
while offer do
  local partition = string.match(offer, '^%d+')
  local entry = entry_of(partition)
  if entry and entry.state == 'offered' and entry.node == node
    and token(partition, entry) == offer then
    lend(partition, entry)
  end
  offer = redis.call('LPOP', mine)
end

if want then
  ask(node, want - #granted, weight)
end

for _, partition in ipairs(redis.call('ZRANGE', OFFERED, 0, -1)) do
  local entry = entry_of(partition)
  if entry and entry.until_ms > now_ms then
    break
  end
  local list = entry and prefix .. 'offers:' .. entry.node
  if not entry then
    redis.call('ZREM', OFFERED, partition)
  elseif redis.call('LREM', list, 0, token(partition, entry)) > 0 then
    -- Nothing was sent with a token that was not collected.
    forget(entry.node)
    place(partition, entry, 'idle', entry.epoch, entry.next_offset, '', 0)
  else
    local until_ms = entry.until_ms - offer_ms + lease_ms
    place(partition, entry, 'out', entry.epoch, entry.next_offset, entry.node, until_ms)
  end
end

while count > 0 do
  local partition = redis.call('ZRANGE', IDLE, 0, 0)[1]
  if not partition then
    break
  end
  local entry = entry_of(partition)
  local served = entry and serve()
  if not entry then
    redis.call('ZREM', IDLE, partition)
  elseif served == node then
    lend(partition, entry)
  else
    place(partition, entry, 'offered', entry.epoch, entry.next_offset, served, now_ms + offer_ms)
    redis.call('RPUSH', prefix .. 'offers:' .. served, token(partition, entry))
  end
end

for name in pairs(changed) do
  local waiter = waiters[name]
  if waiter then
    redis.call('HSET', WAITING, name, table.concat(
      {whole(waiter.want), whole(waiter.weight), whole(waiter.pass), whole(waiter.turn)}, ' '))
  else
    redis.call('HDEL', WAITING, name)
  end
end
redis.call('HSET', META, 'turns', whole(turns), 'last_pass', whole(last_pass),
  'places', whole(places))

for i = at, #ARGV do
  local entry = entry_of(ARGV[i])
  if entry then
    local is_timed = entry.state == 'offered' or entry.state == 'out'
    local left_ms = is_timed and entry.until_ms - now_ms or 0
    seen[#seen + 1] = table.concat({
      entry.state, whole(entry.epoch), whole(entry.next_offset), whole(left_ms), entry.node}, ' ')
  else
    seen[#seen + 1] = ''
  end
end

return {meta[1], now_ms - tonumber(meta[2]), verdicts, granted, seen}
