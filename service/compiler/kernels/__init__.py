"""The hand-written kernels.

The modules directly in this folder are shared by all kernels: groups of operators, geometry, memory layouts, and the
class with which a kernel's program is written. Each package imports only packages before it in this list:

- `vector`: the interface of a vector instruction set.
- `arithmetic`: what a numerics mode computes, for SIMD and for GPUs.
- `simd`: the SIMD kernels. They name no architecture.
- `x86`, `arm`, `riscv`: the instruction sets, which implement `vector.isa`.
- `cuda`: the kernels for NVIDIA GPUs. They import nothing from `simd`.
- `libraries`: maps each target to its kernel library.
"""
