"""TFLite (LiteRT) FlatBuffers, schema version 3, already quantized to 8 bits.

`flatbuffer` makes sure that the file can be read at all, `reader` reads it into plain values (`model`), `support`
refuses what is not compiled, and `importer` converts the rest, operator by operator (`operators`). `metadata` reads
labels and preprocessing.

Paths such as `tflite/kernels/conv.cc` in the docstrings are those of the LiteRT source (google-ai-edge/LiteRT).
"""

from service.compiler.importers.tflite.importer import import_model

__all__ = ["import_model"]
