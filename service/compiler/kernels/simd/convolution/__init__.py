"""Convolutions and dense layers of integers.

- `conv`, `depthwise`, `grouped`: the kernels on 8-bit images; `matrix` is `conv` for matrix instructions such as AMX.
- `int16`: the kernel for 16-bit activations; `plain` prepares its operands.
- `accumulators`: the accumulators of a tile (pixels by blocks of output channels).
- `reduction`: the order in which products are summed, and the layout of the weights.
- `panel`: the layout of the pixels that a matrix kernel reads.
- `output`, `wide`: store the results, as 8-bit images or as contiguous int32 or float32 tensors.
- `tiles`, `matrix_schemes`: the cost models that choose tile sizes.
"""
