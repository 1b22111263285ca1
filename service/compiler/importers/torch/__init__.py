"""Importer of PyTorch's archives of quantized models. The importer does not need PyTorch.

For TorchScript (`torch.jit.save`), `importers.archive` opens the zip archive within limits. `unpickler` and `tensors`
read the archive's pickles without executing anything, and `code` parses the archive's TorchScript. `interpreter`
evaluates `forward` from the inputs to the outputs, and `graph` converts each operator that is called (`operators`).

Paths such as `native/Pool.h` in the docstrings refer to the PyTorch source, below aten/src/ATen.
"""

from service.compiler.importers.torch.importer import import_torchscript

__all__ = ["import_torchscript"]
