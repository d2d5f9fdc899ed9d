"""The `xling` command; the only code that reads arguments and environment."""
