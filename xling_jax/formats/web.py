"""A static encoder for browsers and Node: its files, a module that reads them, and a page.

`encoder.js` computes what `Encoder.encode` does, SentencePiece included, in plain JavaScript.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from xling_jax.encode.model_directory import CONFIG_FILE, PARAMS_FILE, load_model
from xling_jax.formats.registry import export_directory, refuse
from xling_jax.formats.tokenizer_json import unusual_settings
from xling_jax.text.vocab import Vocab, parse_sentencepiece
from xling_jax.text.vocabularies import SENTENCEPIECE_FILE

_MODULE, _PAGE = "encoder.js", "index.html"


def export_web(
    model_directory: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool
) -> dict[str, Any]:
    """Writes an encoder of family static for the browser; vectors are equal within 1e-5.

    Returns facts to log. OptionError for other families and vocabularies, and for parameters in
    float32, which would be downloaded four times as large; FileExistsError without `overwrite`.
    """
    spec = load_model(model_directory)
    rule = (
        f"is of family {spec.config['family']}; browsers compute only family static; use --to onnx"
    )
    refuse(model_directory, {rule: spec.static is None})
    vocab, unusual = spec.vocab, []
    if isinstance(vocab, Vocab):
        model = parse_sentencepiece(vocab.model_bytes)
        unusual = unusual_settings(model) + ["Moses tokenization"] * vocab.moses
        if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
            unusual.append("another type of model")
    problems = {
        "is stored in float32, four times as large as needed; write it with xling export "
        "--storage int8 first": spec.static.storage == "float32",
        "browsers split text with SentencePiece only": not isinstance(vocab, Vocab),
        # Which `encoder.js` does not split as SentencePiece does.
        "browsers split text only with a unigram model of SentencePiece, trained with the usual "
        f"settings; found {', '.join(unusual)}": unusual,
    }
    refuse(model_directory, problems)
    with export_directory(output, _MODULE, overwrite) as fresh:
        for name in (CONFIG_FILE, PARAMS_FILE, SENTENCEPIECE_FILE):
            shutil.copyfile(Path(model_directory) / name, fresh / name)
        for name in (_MODULE, _PAGE):
            shutil.copyfile(Path(__file__).parent / "web_files" / name, fresh / name)
        size = sum(path.stat().st_size for path in fresh.iterdir())
    return {"megabytes": round(size / 1e6, 1), "try": f"python -m http.server --directory {output}"}
