"""`headrace producer`."""
