"""From parallel corpora to token shards: readers, cleaning, preparing."""
