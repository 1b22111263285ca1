"""Importer of MXNet 1.x models: a symbol (`-symbol.json`) and its parameters (`.params`), packed as one file
(`package`). The importer does not need MXNet.

Quantized models come in two forms. `quantize_model_mkldnn` creates oneDNN's subgraphs (`_sg_mkldnn_conv` with fused
normalization, activation and sum). Other models contain the single operators `_contrib_quantized_*`.
"""
