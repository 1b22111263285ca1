"""Reads an ONNX file as plain values.

`wire` reads the bytes, and `schema` defines their meaning. `reader` converts them to plain values (`onnx.model`), and
`graph` refuses graphs that are malformed. `package` handles models whose weights are in separate files.
"""
