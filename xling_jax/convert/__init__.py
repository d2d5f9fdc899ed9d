"""Published encoders to model directories, and ours to what others run."""
