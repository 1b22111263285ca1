"""Labels and preprocessing that an ONNX file carries in its `metadata_props`, which ONNX leaves to whoever writes them.

They are JSON (`core.metadata`) under a key of our own: `octet quantize` writes what a TFLite file says, so that its
result is called as that file would be. They have no part in the arithmetic, so a file with damaged ones is
compiled without.
"""

from __future__ import annotations

from dataclasses import replace

from service.compiler.importers.names import printable
from service.compiler.importers.pixels import check_pixels
from service.core.errors import InvalidInput
from service.core.metadata import NOTHING, ModelMetadata
from service.core.signature import ModelSignature

KEY = "octet.metadata"
_MOST_CHARACTERS = 8 << 20


def parse(said: str) -> ModelMetadata:
    """What a file has under `KEY`. Raises `InvalidInput`."""
    if len(said) > _MOST_CHARACTERS:
        raise InvalidInput(f"it has {len(said)} characters; up to {_MOST_CHARACTERS} are read")
    found = ModelMetadata.from_text(said)
    return replace(found, labels=tuple(map(printable, found.labels)))


def metadata_of(said: str, signature: ModelSignature) -> tuple[ModelMetadata, tuple[str, ...]]:
    """The metadata of a file, and a sentence that says why it cannot be used, where it cannot."""
    try:
        found = parse(said)
        for spec in signature.inputs:
            if spec.is_image and found.is_normalized:
                check_pixels(spec, found)
        classes = [spec.shape[-1] if spec.shape else 1 for spec in signature.outputs]
        if found.labels and len(found.labels) not in classes:
            raise InvalidInput(f"there are {len(found.labels)} labels, and {classes} classes in the outputs")
    except InvalidInput as error:
        return NOTHING, (f"labels and preprocessing in the file's metadata cannot be used: {error.message}",)
    return found, ()
