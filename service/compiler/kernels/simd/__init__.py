"""The SIMD kernels, written against `kernels.vector.isa` and thus for every vector instruction set.

- `library`: the kernels of one instruction set, as a `KernelLibrary`.
- `families`: chooses the kernel for a group of operators.
- `convolution`: convolutions and dense layers of 8-bit and 16-bit activations.
- `float`: convolutions and matrix products of float32 and bfloat16.
- `products`: products of two 8-bit matrices that are both computed at run time.
- `rows`: regions of operators that are computed row by row, and softmax.
- `images`: pooling, resizing, concatenation, elementwise operators and lookup tables on images.
- `memory`: layout changes.
- `lstm`: a whole LSTM in one kernel.
- `peak`: a loop of multiplications, which measures the highest rate that the instruction set reaches.
"""
