"""Reads and writes the ONNX file. What is not edited stays as it was."""
