"""Float networks quantized by Octet, by ONNX Runtime and by NNCF, on the same inputs: the loss of accuracy of each.

`networks` has the float networks, their inputs and how results are judged, `peer` runs in the peers' environment, and
`python -m benchmarks.quantization` runs everything and writes QUANTIZATION.md.
"""
