"""Log dirs: the folders of a broker, what they hold, and logs that move between them."""
