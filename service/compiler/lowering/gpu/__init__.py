"""Code generation for GPUs: tensor programs that no hand-written kernel computes become CUDA C++.

- `lowering`: replaces each call of a tensor program by launches of kernels.
- `stages`: splits a program into stages. Each stage is one launch.
- `functions`: writes the device function of a stage.
- `printer`: prints statements and expressions as C++.
- `spelling`: the C++ names of types, constants and operations.
"""
