"""Float networks quantized by Octet, by ONNX Runtime and by NNCF, on the same inputs: the loss of accuracy of each.

`networks` defines the float networks, their inputs, and the functions that judge results. `peer` runs the other tools
in their environment. `python -m benchmarks.quantization` runs everything and writes QUANTIZATION.md.
"""
