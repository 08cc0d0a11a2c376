"""One node: it accepts connections and serves the APIs of the Kafka protocol.

`broker` starts and stops everything; `node` holds the services that API functions use.

A request passes `server` (listening sockets), `connection` (frames; `buffers` receives large ones),
`router` (finds the API in the table of `registry`) and its file in `apis/`; a Produce or an
OffsetCommit that repeats an earlier one is served by `produce_templates` or `commit_templates`.
`partitions` finds the `partition`, which appends to the log and syncs it, `purgatory` holds
requests that wait, and `send_queue` writes responses to the socket.

Services: `topics` creates, alters and deletes topics (`log_config` gives their settings to the log,
`stray_folders` sets folders without a topic aside), and `fetch_sessions` remembers what a consumer
fetches. Coordinators: `sharding` finds the `shard` of a coordinator's topic, `groups` and
`groups_shard` serve consumer groups, `transactions` and `transactions_shard` serve transactions,
`transactions_verification` checks their batches and `transactions_markers` ends them.

In the background, `housekeeping` runs retention, checkpoints and the cleaner, `log_dir_moves` moves
partitions between disks, and `worker_processes` does CPU-bound work. `clock`, `metrics` and `ports`
are time, counters, and what a cluster or a test provides.
"""

from headrace.broker.broker import Broker

__all__ = ["Broker"]
