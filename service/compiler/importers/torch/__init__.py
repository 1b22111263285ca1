"""PyTorch's archives of quantized models, read without PyTorch.

TorchScript (`torch.jit.save`): `importers.archive` opens the zip within limits, `unpickler` and `tensors` read its
pickles without executing anything, `code` parses its TorchScript, `interpreter` follows `forward` from the input to the
outputs, and `graph` converts the operators that it finds there (`operators`).

Paths such as `native/Pool.h` in the docstrings refer to the PyTorch source, below aten/src/ATen.
"""

from service.compiler.importers.torch.importer import import_torchscript

__all__ = ["import_torchscript"]
