"""`headrace dispatch`."""
