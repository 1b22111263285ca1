"""Convolutions, dense layers and matrix products of float32 and bfloat16.

- `groups`: chooses the kernel for an operator and prepares its weights.
- `product`, `depthwise`: the kernels.
- `factors`: the two types of factors that products can have: float32 values, or pairs of bfloat16 values.
- `blocks`: weights of 4 or 8 bits, stored in blocks of rows. Each block has its own scales.
- `memory`: copies and converts operands, and adds borders of zeros.
- `tiles`: the cost model that chooses tile sizes.
"""
