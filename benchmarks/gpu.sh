#!/bin/sh
# Measures Octet beside PyTorch on the card of the machine it runs on, in ten minutes at most:
#
#   benchmarks/gpu.sh [--minutes 9.5] [--results DIR] [--seconds 1] [--clients 1 64 256] [--no-peer] [--no-serving]
#
# It belongs to a folder of benchmarks.gpu.prepare, made on a machine with the compiler. That folder is all it takes, besides
# NVIDIA's driver and a Python of 3.11 or newer with NumPy (PYTHON names it). What that Python also has is measured: PyTorch
# as the peer, grpcio for gRPC. Writes results.md and results.jsonl as it goes, and the table into benchmarks/GPU.md.
# Status 1: an answer was wrong, or a model did not run; what was measured is written all the same.
set -eu
cd "$(dirname "$0")/.."
[ -f artifacts/about.json ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; echo "no artifacts are here: see prepare" >&2; exit 2; }
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "$python is older than Python 3.11: name another by PYTHON" >&2; exit 2; }
"$python" -c 'import numpy' || { echo "$python has no NumPy: name another by PYTHON" >&2; exit 2; }
# What only the server's settings take, where this Python lacks it. For that process alone: PyTorch keeps its own.
if ! "$python" -c 'import pydantic_settings' 2> /dev/null; then
  "$python" -m pip install --quiet --no-index --find-links wheels --target site pydantic-settings ||
    echo "pydantic-settings cannot be installed: serving will fail" >&2
fi
exec "$python" -u -m benchmarks.gpu "$@"
