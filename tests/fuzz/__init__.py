"""Malformed bytes for both implementations of the codec: equal bytes, or the same error; no crash and no hang."""
