"""The calibration program: the float model with the types of all layers as parameters. It is compiled once, and then
runs any choice of types.

`slots` names the parameters, `writing` writes the program as an ONNX file, and `parameters` computes the numbers for a
choice of types.
"""
