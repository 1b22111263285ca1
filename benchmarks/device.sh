#!/bin/sh
# Measures Octet, LiteRT and ONNX Runtime on this machine, and writes the table into benchmarks/ARM.md:
#
#   benchmarks/device.sh FOLDER [--seconds 2] [--rounds 3]
#
# FOLDER contains models, NAME.tflite or NAME.onnx, each with its artifact, NAME.octet, from any machine with the
# compiler: octet compile NAME.tflite --target aarch64+dotprod --output NAME.octet
# Needs Python 3.11 or newer with venv. OCTET_WHEEL is a wheel of `make wheel` to measure instead of the release.
set -eu
[ -d "${1:-}" ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
models=$(realpath "$1"); shift
checkout=$(realpath "$(dirname "$0")/..")
wheel=${OCTET_WHEEL:+$(realpath "$OCTET_WHEEL")}
home=${XDG_CACHE_HOME:-$HOME/.cache}/octet-bench/device
[ -x "$home/bin/python" ] || python3 -m venv "$home"
"$home/bin/pip" install --quiet --disable-pip-version-check "${wheel:-octet-serve}[runtime]"
for peer in ai-edge-litert==2.3.0 onnxruntime==1.31.1; do
  "$home/bin/pip" install --quiet --disable-pip-version-check "$peer" ||
    echo "no $peer for this Python: its column stays empty" >&2
done
# Run the checkout's benchmarks with the installed package: the checkout's package has no native libraries here.
mkdir -p "$home/tree"
ln -sfn "$checkout/benchmarks" "$home/tree/benchmarks"
cd "$home/tree"
exec "$home/bin/python" -m benchmarks.arm.device "$models" "$@"
