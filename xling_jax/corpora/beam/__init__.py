"""Apache Beam as the engine of preparation, for corpora beyond one machine; an extra.

    runner.py     a runner and its options; how a run of it ends
    engine.py     the work of the stages as pipelines
    prepare.py    the launch, and workdirs at URLs

The stages and their bytes are those of `corpora.prepare`, which runs here as it does without Beam;
workers read and clean the corpora, and write the token shards. Beam is imported in functions only.
"""
