"""Random models of one ONNX operator: quantized operators, and operators with many variants."""
