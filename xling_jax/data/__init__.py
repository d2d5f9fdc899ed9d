"""From text to batches: languages, corpora, cleaning, vocabulary, token shards, pairs."""
