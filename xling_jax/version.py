"""The version of this package; a module of its own, so that all others may import it."""

__version__ = "0.4.0.dev0"
