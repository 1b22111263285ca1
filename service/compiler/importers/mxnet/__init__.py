"""MXNet 1.x: a symbol (`-symbol.json`) and its parameters (`.params`), packed as one file (`package`), read without
MXNet.

Quantized models come in two forms: oneDNN's subgraphs (`_sg_mkldnn_conv` with its fused normalization, activation and
sum), which `quantize_model_mkldnn` makes, and the single operators `_contrib_quantized_*`.
"""
