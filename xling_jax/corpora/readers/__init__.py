"""Readers of parallel text: one module for each kind of corpus, each a stream of rows.

A new kind is a module with a subclass of `base.Reader`, and a line in this table. A kind is also
the suffix of the files that need none in front of their path.
"""

from xling_jax.registry import Registry

_HERE = "xling_jax.corpora.readers"
READERS = Registry(
    "corpus kind",
    tsv=f"{_HERE}.delimited:TsvReader",
    csv=f"{_HERE}.delimited:CsvReader",
    jsonl=f"{_HERE}.jsonl:JsonlReader",
    parquet=f"{_HERE}.arrow:ParquetReader",
    hf=f"{_HERE}.arrow:HuggingFaceReader",
    moses=f"{_HERE}.moses:MosesReader",
    zip=f"{_HERE}.moses:MosesZipReader",
    tmx=f"{_HERE}.xml_units:TmxReader",
    xlf=f"{_HERE}.xml_units:XliffReader",
    xliff=f"{_HERE}.xml_units:XliffReader",
    gettext=f"{_HERE}.gettext:GettextReader",
    po=f"{_HERE}.gettext:GettextReader",
    mo=f"{_HERE}.gettext:GettextReader",
    tfds=f"{_HERE}.tfds:TfdsReader",
)
