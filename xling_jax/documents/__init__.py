"""Documents as vectors of their sentences: language components removed, sentences weighted."""
