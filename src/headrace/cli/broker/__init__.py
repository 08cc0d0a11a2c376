"""`headrace up` and `headrace broker`: run a broker, with or without its services."""
