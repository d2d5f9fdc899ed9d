"""Finding what belongs together among embeddings: neighbors, margins, mined pairs."""
