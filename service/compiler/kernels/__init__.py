"""The hand-written kernels.

The modules in this folder are what all kernels share: groups of operators, geometry, memory layouts, and the program
that a kernel is written as. Each package imports only packages before it in this list:

- `vector`: the interface of a vector instruction set.
- `arithmetic`: what a numerics mode computes, for SIMD and for GPUs.
- `simd`: the SIMD kernels. They name no architecture.
- `x86`, `arm`, `riscv`: the instruction sets, which implement `vector.isa`.
- `cuda`: the kernels for NVIDIA GPUs. They import nothing from `simd`.
- `libraries`: the library of kernels of each target.
"""
