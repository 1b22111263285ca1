"""Exported programs (`torch.export.save`, `.pt2`), read without PyTorch.

`reader` and `payloads` convert the archive to a `Program`: sorted operators with their arguments, and constants.
PyTorch and torchao have several types of quantizations and dequantizations; `conversions` converts them to one form
that includes the type. `fusing` replaces float operators between conversions by quantized operators (`importers.qdq`),
and `importer` converts the result with the rules for TorchScript's operators (`torch.operators`).
"""

from service.compiler.importers.torch.exported.importer import import_exported

__all__ = ["import_exported"]
