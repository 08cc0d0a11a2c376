"""`headrace half`."""
