"""Importer of TFLite (LiteRT) FlatBuffers of schema version 3 that are already quantized to 8 bits.

`flatbuffer` checks that the file can be read safely. `reader` reads it into plain values (`model`), and `support`
refuses models that cannot be compiled. `importer` converts all other models operator by operator (`operators`).
`metadata` reads labels and preprocessing.

Paths such as `tflite/kernels/conv.cc` in the docstrings refer to the LiteRT source (google-ai-edge/LiteRT).
"""

from service.compiler.importers.tflite.importer import import_model

__all__ = ["import_model"]
