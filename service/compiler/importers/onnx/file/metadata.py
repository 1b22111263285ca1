"""Reads labels and preprocessing from an ONNX file's `metadata_props`. ONNX does not define its keys.

Octet stores labels and preprocessing as JSON (`core.models.metadata`) under a key of its own. `octet quantize` copies
the metadata of a TFLite file there, so that clients can use the ONNX file like the TFLite file. The metadata does not
affect the arithmetic: a file with damaged metadata is compiled without it.
"""

from __future__ import annotations

from dataclasses import replace

from service.compiler.importers.names import printable
from service.compiler.importers.pixels import check_pixels
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.signature import ModelSignature

KEY = "octet.metadata"
_MOST_CHARACTERS = 8 << 20


def parse(text: str) -> ModelMetadata:
    """Parses the text stored under `KEY` in a file. Raises `InvalidInput`."""
    if len(text) > _MOST_CHARACTERS:
        raise InvalidInput(f"it has {len(text)} characters; at most {_MOST_CHARACTERS} are read")
    found = ModelMetadata.from_text(text)
    return replace(found, labels=tuple(map(printable, found.labels)))


def metadata_of(text: str, signature: ModelSignature) -> tuple[ModelMetadata, tuple[str, ...]]:
    """Returns the metadata of a file. If it cannot be used, also returns a sentence with the reason."""
    try:
        found = parse(text)
        for spec in signature.inputs:
            if spec.is_image and found.is_normalized:
                check_pixels(spec, found)
        classes = [spec.shape[-1] if spec.shape else 1 for spec in signature.outputs]
        if found.labels and len(found.labels) not in classes:
            raise InvalidInput(f"there are {len(found.labels)} labels, but {classes} classes in the outputs")
    except InvalidInput as error:
        return NOTHING, (f"labels and preprocessing in the file's metadata cannot be used: {error.message}",)
    return found, ()
