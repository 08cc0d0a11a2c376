"""`headrace service`."""
