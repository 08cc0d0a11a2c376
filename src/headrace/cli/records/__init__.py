"""`headrace produce` and `headrace consume`."""
