"""`headrace large`."""
