"""The capture itself: the enumerator hands out splits, the log reader routes every change by their state."""
