"""Text to vectors: the encoder, its model directory and embedding files."""
