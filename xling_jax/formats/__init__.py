"""Published encoders into model directories, and model directories into what others run."""
