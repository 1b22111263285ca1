"""The interface of a vector instruction set. The arithmetic and the SIMD kernels are written against it.

- `isa`: the interface. `kernels/x86`, `kernels/arm` and `kernels/riscv` implement it.
- `rates`: the costs of instructions, for the cost models.
- `lanes`: arithmetic on one vector of int32 accumulators.
- `fixed_point`, `bfloat16`: implementations of parts of the interface, for instruction sets that lack such
  instructions.
- `portable`: the whole interface in operations that LLVM supports on every CPU.
"""
