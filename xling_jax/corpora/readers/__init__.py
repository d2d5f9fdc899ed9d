"""Readers of parallel text: one module for each kind of corpus, each a stream of rows.

A new kind is a module with a subclass of `base.Reader`, and a line in this table.
"""

from xling_jax.registry import Registry

READERS = Registry(
    "corpus kind",
    tsv="xling_jax.corpora.readers.tsv:TsvReader",
    moses="xling_jax.corpora.readers.moses:MosesReader",
    tmx="xling_jax.corpora.readers.tmx:TmxReader",
    gettext="xling_jax.corpora.readers.gettext:GettextReader",
    tfds="xling_jax.corpora.readers.tfds:TfdsReader",
)
