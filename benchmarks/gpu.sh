#!/bin/sh
# Measures Octet beside PyTorch on the card of the machine it runs on, and writes the table into benchmarks/GPU.md:
#
#   benchmarks/gpu.sh FOLDER [--seconds 1] [--rounds 3] [--no-peer]
#
# FOLDER is of a machine with the compiler: python -m benchmarks.gpu.prepare FOLDER MODEL.onnx …
# Wants this checkout with its runtime built (service/native/liboctet_runtime.so and liboctet_python.so), NVIDIA's driver,
# and a Python of 3.11 or newer with NumPy (PYTHON names it); PyTorch, where the peer's columns are wanted.
set -eu
[ -d "${1:-}" ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
folder=$(realpath "$1"); shift
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
first=$(ls "$folder" | grep -m 1 -- '-b1$' || true)
# Correct before fast, and looked at closely where NVIDIA's tool is there: a model of batch 1.
if [ -n "$first" ] && command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" -m benchmarks.gpu.once "$folder/$first"
  done
else
  echo "compute-sanitizer is not there: nothing was looked at closely" >&2
fi
exec "$python" -m benchmarks.gpu "$folder" "$@"
