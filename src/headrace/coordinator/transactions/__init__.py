"""Transactions, pure: the partitions that a transactional id writes to, and how that ends.

`coordinator` serves the ids of one partition of `__transaction_state`, through the table in
`states`. `records` is the format in the log, `effects` is what a step returns, `describe` serves
administrators.
"""
