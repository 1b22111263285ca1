"""Rewrites the graph before it is converted, mostly as ONNX Runtime's optimizer does."""
