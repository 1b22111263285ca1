"""Products of two computed 8-bit matrices, as in attention.

- `product`: the kernel.
- `layout`: the layout of the second matrix.
"""
