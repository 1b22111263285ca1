"""Products of two 8-bit matrices that are both computed at run time, as in attention.

- `product`: the kernel.
- `layout`: copies the second matrix to the layout of `Isa.dot`.
"""
