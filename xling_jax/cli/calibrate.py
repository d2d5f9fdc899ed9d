"""Measures what the scores of mined pairs mean, and writes it into the model directory.

From translations that the model was not trained on, best of several kinds of text, it makes texts
in which a half and a tenth of the sentences have a translation, and mines them. `xling mine
--precision` and the model card use the result. Vectors and fingerprint stay the same.
"""

import argparse
import logging

from xling_jax.cli.arguments import add_languages, check_input, load_encoder
from xling_jax.options import OptionError

_logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling calibrate --model M --data europarl.dev.tsv.gz news.dev.tsv.gz
  xling calibrate --model M --data tatoeba/ --languages en,de,fr --overwrite
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, help="model directory or workdir; for mini, a copy of it"
    )
    parser.add_argument(
        "--data",
        required=True,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="n-way TSV with a header of language codes, a directory of pairs such as Tatoeba's, "
        "or, with --languages, KIND:WHERE such as moses:data/test.de-en",
    )
    add_languages(parser, "languages to use (default: all)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier calibration")


def run(args: argparse.Namespace) -> None:
    from xling_jax.encode.model_card import scores_section
    from xling_jax.encode.model_directory import SHIPPED, find_model_directory, write_calibration
    from xling_jax.eval.calibration import calibrate
    from xling_jax.eval.retrieval import Retrieval

    check_input(args, "data", can_be_folder=True)
    directory = find_model_directory(args.model)
    if directory in SHIPPED.values():
        raise OptionError(
            f"--model {args.model}: is read-only; calibrate a copy made with "
            f"xling_jax.load({args.model!r}).save('DIR')"
        )
    encoder = load_encoder(directory)
    if encoder.calibration and not args.overwrite:
        raise OptionError(f"{directory}: is calibrated already; add --overwrite to replace that")
    sets = Retrieval().read(args.data, args.languages)
    calibration = calibrate(encoder.encode, sets)
    write_calibration(directory, calibration)
    print(scores_section(calibration))
    _logger.info("%s: calibrated", directory)
