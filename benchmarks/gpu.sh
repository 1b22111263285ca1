#!/bin/sh
# Measures Octet and PyTorch on this machine's GPU, in ten minutes at most:
#
#   benchmarks/gpu.sh [--minutes 9.5] [--results DIR] [--seconds 1] [--clients 1 64 256] [--no-peer] [--no-serving]
#
# It belongs to a folder of benchmarks.gpu.prepare, which is created on a machine with the compiler. Besides that folder,
# it needs only NVIDIA's driver and Python 3.11 or newer with NumPy (set PYTHON to it). If that Python has PyTorch, it is
# the peer; if it has grpcio, gRPC is measured. Writes results.md and results.jsonl during the run, and the table into
# benchmarks/GPU.md. Exit status 1: a result was wrong, or a model did not run; the other measurements are written.
set -eu
cd "$(dirname "$0")/.."
[ -f artifacts/about.json ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; echo "this folder has no artifacts: see benchmarks.gpu.prepare" >&2; exit 2; }
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "$python is older than Python 3.11: name another by PYTHON" >&2; exit 2; }
"$python" -c 'import numpy' || { echo "$python has no NumPy: name another by PYTHON" >&2; exit 2; }
# Packages that only the server's settings need, if this Python lacks them. For that process only: PyTorch has its own.
if ! "$python" -c 'import pydantic_settings' 2> /dev/null; then
  "$python" -m pip install --quiet --no-index --find-links wheels --target site pydantic-settings ||
    echo "pydantic-settings cannot be installed: serving will fail" >&2
fi
exec "$python" -u -m benchmarks.gpu "$@"
