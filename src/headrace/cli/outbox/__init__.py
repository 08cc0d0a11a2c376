"""`headrace outbox`."""
