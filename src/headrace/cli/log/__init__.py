"""`headrace log`."""
