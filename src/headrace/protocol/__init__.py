"""The Kafka wire protocol, pure: messages, their codecs, headers, errors and record batches."""
