"""`headrace inbox`."""
