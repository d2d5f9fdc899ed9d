"""Files whole or not at all, their hashes, URLs, stored vectors, worker pools, progress."""
