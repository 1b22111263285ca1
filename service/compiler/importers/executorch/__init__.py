"""The importer of ExecuTorch programs (`.pte`).

A program is a list of calls: of kernels (ATen's operators with an `out` argument), and of delegates. The delegate
XNNPACK has a graph of its own, in a FlatBuffer inside the program. Kernels are converted by the rules of PyTorch's
operators (`importers.torch.operators`), and the delegate's nodes by those of `operators`.

`file` reads the bytes; nothing in it is executed.
"""
