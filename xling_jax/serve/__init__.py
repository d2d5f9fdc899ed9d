"""Encoders over HTTP, and the search of a text; thin layers over `encode` and `align`."""
