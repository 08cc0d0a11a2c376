"""Pure state machines: requests and timers in, records, replies and timers out.

Consumer groups: `coordinator` holds the groups of one partition of `__consumer_offsets`. `classic`
serves joins, syncs, heartbeats and leaves; `rebalances` moves a `group` and its members (`member`)
through the table in `states`, which `transitions` looks up. `commits` and `txn_commits` serve
offsets, which `offsets` stores; `pending_values` holds those of open transactions, and
`commit_record_templates` encodes commits that repeat an earlier one. `records` is the format in the
log, `loading` reads it at a start, `effects` is what a step returns, and `describe` serves
administrators. `transactions/` has the same shape. The broker's shards carry the effects out.
"""
