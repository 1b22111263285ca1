"""The arithmetic of kernels: the formulas of the numerics modes, for SIMD kernels and for GPU kernels.

A SIMD kernel calls these classes to write its program. A GPU kernel prints these classes as the C++ types of the same
names (`cuda/types/epilogues.py`). Nothing here depends on an architecture.

- `numerics`: chooses the epilogue that computes a mode's formula.
- `epilogue`: the steps from accumulators to stored values.
- `requantization`, `torch_epilogues`, `onnxruntime_epilogues`: the rescaling step, for each way of rounding.
- `addition`: adds a residual in an epilogue.
- `fused`, `shared_shift`: faster forms of TFLite's requantization and addition. They are used only for parameters for
  which they are proven to give equal results.
- `pairs`: elementwise operators of two 8-bit tensors.
- `average`, `interpolation`: the formulas of average pooling and of bilinear resizing.
- `conversion`: converts between float32 values and stored bytes.
- `fixed16`: the logistic function and tanh of 16-bit fixed-point numbers.
- `tables`: lookup tables of operators on one 8-bit tensor.
- `taps`: divides the input pixels of a depthwise kernel row into vectors of four.
- `demands`: checks if a kernel can compute an operator on 8-bit images.
"""
