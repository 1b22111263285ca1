"""The kernels for NVIDIA GPUs.

Each kernel is a C++ template in `source`, which is instantiated for a geometry, a tile and a formula.

- `library`, `families`: choose the kernel for a group of operators.
- `conv`, `depthwise`, `pool`, `resize`, `concat`, `pairs`, `moves`, `reorder`: the kernels.
- `tiles`: the cost model of convolutions; `reads`: the steps of their reduction.
- `images`, `elements`, `outputs`, `epilogues`, `conversion`: express layouts and formulas as C++ types.
- `cards`: the parameters of GPUs, by compute capability.
- `text`, `nvrtc`: assemble the source of a kernel, and compile it.
- `peak`: a loop of multiplications, which measures the peak rate of a GPU.
"""
