"""Importer of MXNet 1.x models: a symbol (`-symbol.json`) and its parameters (`.params`), packed as one file
(`package`). It does not need MXNet.

Quantized models have two forms: oneDNN's subgraphs (`_sg_mkldnn_conv` with fused normalization, activation and sum),
which `quantize_model_mkldnn` makes, and the single operators `_contrib_quantized_*`.
"""
