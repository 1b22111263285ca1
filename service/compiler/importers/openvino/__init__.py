"""Importer of OpenVINO's intermediate representation (IR): a graph (`.xml`) and its weights (`.bin`), packed as one
file (`file.package`). The importer does not need OpenVINO.

`file` reads the bytes as plain values (`model`) and refuses what is malformed. `importer` converts the layers one by
one (`operators`). Layers of real values are converted by the rules of ONNX's operators (`importers.onnx.standard`).

Quantized models contain FakeQuantize layers, which round real values to a grid of 256 steps. Their results are kept as
stored values (`values.Stored`), so that convolutions and matrix products are computed in integers, as OpenVINO's CPU
plugin does after its low-precision transformations.
"""
