"""Training losses as functions of arrays, one file per family."""
