"""Corpora, and what preparation makes of them: cleaned text, a vocabulary, token shards.

Throughout, what is wrong in a corpus, a config or prepared data is a ValueError, and what the file
system refuses an OSError: one line that names the file and the line, the rule and the way out.
"""
