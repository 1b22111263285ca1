"""Arithmetic that is written once: each expression consists of the scalar operations of `ops.Ops`.

Three classes implement these operations: `tensors.TensorOps` for generated code, `kernels.vector.lanes.Lanes` for the
vectors of x86, ARM and RISC-V, and `kernels.cuda.printer.CudaOps` for GPUs. A formula of `qnn.numerics` returns the
expression that computes it. So all targets compute a formula in the same way.
"""
