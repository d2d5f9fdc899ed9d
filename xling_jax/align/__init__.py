"""Finding what belongs together among embeddings: neighbors and margins, on NumPy alone."""
