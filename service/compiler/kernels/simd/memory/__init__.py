"""Layout changes.

- `reorder`: between contiguous tensors and the images that kernels work on.
- `channels_first`: the same for tensors `[N, C, H, W]`.
- `moves`: kernels that only rearrange elements (`kernels.moves`).
"""
