"""A run from its config and workdir: prepared, trained, continued and exported."""
