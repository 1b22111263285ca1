"""A float model of any importer -> a float ONNX file, which is what `service.quantize` reads.

`model` is the whole; `operators` has a line for each operator of Relax, `composites` find what ONNX has one operator
for and importers have several, and `graph` holds what is written, each tensor with its axes in the order that was asked
for.
"""
