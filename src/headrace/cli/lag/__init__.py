"""`headrace lag`."""
