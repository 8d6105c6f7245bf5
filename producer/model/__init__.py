"""Cutting a table into splits, and what the log reader must know of them."""
