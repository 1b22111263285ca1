"""Converts a float model from any importer to a float ONNX file, which the rest of `service.quantize` reads.

`model` is the entry point. `operators` has an entry for each operator of Relax. `composites` recognizes groups of
operators that importers create and for which ONNX has a single operator. `graph` is the ONNX graph that is written;
each of its tensors has its axes in the order that its readers need.
"""
