"""`headrace settings`."""
