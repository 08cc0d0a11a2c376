"""Lag of consumer groups: measured, judged by levels, explained; on any Kafka."""
