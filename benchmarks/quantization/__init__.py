"""Float networks quantized by Octet and by ONNX Runtime, on the same inputs: what each costs in accuracy.

`sources` makes the float networks and inputs, `quantize_onnxruntime` runs in a peer's environment, and `python -m
benchmarks.quantization` does all of it and writes QUANTIZATION.md.
"""
