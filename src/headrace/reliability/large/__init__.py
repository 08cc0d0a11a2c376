"""Large messages: whole through any Kafka, in chunks or by a claim check, never whole in memory."""
