"""Preparation as one pipeline of Apache Beam, which is imported in functions only: an extra.

    runner.py     a runner and its options; how a run of it ends
    store.py      files of any of Beam's file systems
    parts.py      which lines of a corpus are read by one worker
    cleaning.py   steps: parts to cleaned pieces of text
    rows.py       steps: which rows of the pieces are kept, and in which shard
    tokens.py     steps: vocabulary, shards, manifest
    prepare.py    the pipeline and its launch

The bytes are those of `corpora.prepare`. Text passes between workers as files below
`WORKDIR/data/.beam.partial`; Beam itself carries names, counts, and twelve bytes a row.
"""
