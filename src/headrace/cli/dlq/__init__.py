"""`headrace dlq`."""
