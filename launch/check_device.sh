#!/usr/bin/env bash
# Is this device right, and how fast? Correctness, updates, encoding, attention, search: one page.
#   launch/check_device.sh --output check/ [--small]
# Needs the package installed (pip install --no-deps . will do), no network, no data and no TensorFlow.
# See benchmarks/check_device.py.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
# PyTorch is measured on the same device, and needs memory of its own.
export XLA_PYTHON_CLIENT_PREALLOCATE=${XLA_PYTHON_CLIENT_PREALLOCATE:-false}
exec "${PYTHON:-python}" "$here/benchmarks/check_device.py" "$@"
