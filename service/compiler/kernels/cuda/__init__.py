"""The kernels for NVIDIA GPUs.

Each kernel is a C++ template in `source`, which is instantiated for a geometry, a tile and a formula.

- `library`, `families`: choose the kernel for a group of operators.
- `operators`: the kernels, and the steps of a convolution's reduction (`operators.reads`).
- `types`: express layouts and formulas as C++ types.
- `tiles`: the cost model of convolutions.
- `gpus`: the parameters of GPUs, by compute capability.
- `text`, `nvrtc`: assemble the source of a kernel, and compile it.
- `peak`: a loop of multiplications, which measures the peak rate of a GPU.
"""
