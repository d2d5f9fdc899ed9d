"""Published encoders to model directories; `export` is the way out."""
