"""`headrace delay`."""
