"""Readers of parallel text: one module a format, each a stream of rows. Not for cleaning."""
