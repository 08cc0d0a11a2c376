"""What the platform says about itself: alarms for people. Every room may use it."""
