"""Texts of a MySQL server: character sets, collations and statements. It needs no connection."""
