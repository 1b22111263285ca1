"""Kernels that change the memory layout of tensors.

- `reorder`: converts between contiguous tensors and the images that kernels work on.
- `channels_first`: does the same for tensors `[N, C, H, W]`.
- `moves`: copies elements in any order (`kernels.moves`).
"""
