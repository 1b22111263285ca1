"""ONNX's backend tests (the package `onnx` contains them), run by compiled code."""
