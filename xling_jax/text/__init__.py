"""Languages, scripts, vocabularies and tokenizers, sentence splitting."""
