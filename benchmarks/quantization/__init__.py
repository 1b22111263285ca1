"""Float networks quantized by Octet, by ONNX Runtime and by NNCF, on the same inputs: what each costs in accuracy.

`networks` has the float networks, their inputs and how answers are judged, `peer` runs in the peers' environment, and
`python -m benchmarks.quantization` does all of it and writes QUANTIZATION.md.
"""
