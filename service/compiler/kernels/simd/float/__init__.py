"""Convolutions, dense layers and matrix products of float32 and bfloat16.

- `groups`: chooses the kernel for an operator and prepares its weights.
- `product`, `depthwise`: the kernels.
- `factors`: the two kinds of factors, float32 values and pairs of bfloat16 values.
- `blocks`: weights of 4 or 8 bits that are stored in blocks with scales of their own.
- `memory`: copies operands, converts them and adds borders of zeros.
- `tiles`: the cost model that chooses tile sizes.
"""
