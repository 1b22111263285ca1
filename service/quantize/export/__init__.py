"""Converts a float model from any importer to a float ONNX file, which the rest of `service.quantize` reads.

`model` is the entry point. `operators` has an entry for each operator of Relax. Importers convert some ONNX operators
to groups of operators; `composites` recognizes such groups and replaces each by a single ONNX operator. `graph` is the
ONNX graph that is written. The axes of its tensors are in the order that the operators need.
"""
