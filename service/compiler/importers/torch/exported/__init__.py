"""Exported programs (`torch.export.save`, `.pt2`), read without PyTorch.

`reader` and `payloads` make a `Program` of the archive: operators in order, with their arguments, and constants.
`conversions` gives quantizations and dequantizations, of which PyTorch and torchao have several, one form with the
type at hand. `fusing` puts quantized operators where float ones stood between them (`importers.qdq`), and `importer`
converts what comes out by the rules that TorchScript's operators have, too (`torch.operators`).
"""

from service.compiler.importers.torch.exported.importer import import_exported

__all__ = ["import_exported"]
