"""Apache Beam as the engine of preparation, for corpora beyond one machine; an extra.

The stages and their bytes are those of `corpora.prepare`, which runs here as it does without Beam;
workers read and clean the corpora, and write the token shards. Beam is imported in functions only.
"""
