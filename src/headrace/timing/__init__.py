"""Time without a clock: the timing wheel of all deadlines, and durations as text."""
