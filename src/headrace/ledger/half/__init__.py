"""Half messages: prepared first, visible once their sender's local transaction has happened."""
