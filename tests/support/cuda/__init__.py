"""CUDA without a card: kernels run on the CPU from the very source that NVRTC gets, and their machine code is read."""
