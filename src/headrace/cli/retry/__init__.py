"""`headrace retry`."""
