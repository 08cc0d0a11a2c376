"""What an operator does to a cluster: topics, groups and transactions, for any caller."""
