"""Delayed messages: kept until their time, cancellable, delivered once; from any Kafka client."""
