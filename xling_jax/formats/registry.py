"""Formats that a model directory can be written in, by name."""

from xling_jax.registry import Registry

# Each is a function (model_directory, output, *, overwrite, **options) -> dict of facts to log; it
# raises ValueError for a model that the format cannot hold, ImportError for a missing package.
EXPORTERS = Registry(
    "--to",
    onnx=("xling_jax.formats.onnx_file:export_onnx", "a graph for onnxruntime"),
    **{
        "sentence-transformers": (
            "xling_jax.formats.sentence_transformers:export_sentence_transformers",
            "a directory for SentenceTransformer(PATH)",
        ),
    },
    model2vec=(
        "xling_jax.formats.model2vec:export_model2vec",
        "a directory for model2vec.StaticModel",
    ),
    laser=("xling_jax.formats.laser:export_laser", "the .pt file of LASER's own code"),
)

QUANTIZATIONS = ("int8",)  # of onnx
