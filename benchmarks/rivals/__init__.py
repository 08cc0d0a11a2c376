"""What a user might pick instead of a handler, each as a program that does one load."""
