"""Reads labels and preprocessing from the metadata of a TFLite file. Labels and preprocessing are meant for programs
that call the model.

Metadata is a separate FlatBuffer in one of the model's buffers. The files to which it refers are in a zip archive after
the model. Neither affects the arithmetic, and LiteRT does not read them. So if the metadata is damaged, the model is
compiled without the damaged part, and a notice reports this.

Of these, only the NormalizationOptions of image inputs and the TENSOR_AXIS_LABELS of outputs are read here;
`published.tflite_texts` reads tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import tflite

from service.compiler.importers.archive import Archive
from service.compiler.importers.names import printable
from service.compiler.importers.pixels import check_pixels
from service.compiler.importers.tflite.file.metadata_schema import IMAGE_PROPERTIES, TENSOR_AXIS_LABELS
from service.compiler.importers.tflite.file.metadata_tables import (
    SubgraphMetadata,
    TensorMetadata,
    read_tables,
)
from service.compiler.importers.tflite.file.tensors import bytes_of_buffer
from service.core.errors import InvalidInput, MalformedModel, OctetError
from service.core.models.metadata import NOTHING, Layout, ModelMetadata, parse_labels
from service.core.models.signature import ModelSignature, TensorSpec

T = TypeVar("T")

_BUFFER = b"TFLITE_METADATA"
_ARCHIVE_BYTES = 4 << 20  # limit of the bytes at the file's end that are searched, and of the bytes that are unpacked
_WHITE = 255.0


def metadata_of(data: bytes, signature: ModelSignature) -> tuple[ModelMetadata, tuple[str, ...]]:
    """Returns the metadata of a verified file. Also returns a sentence, with the reason, for each part that cannot be
    used.

    Args:
        data: the file, which `flatbuffer.verify` has accepted.
        signature: the inputs and outputs in the file's order.
    """
    notices: list[str] = []

    def usable(what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except OctetError as error:
            notices.append(f"{what} in the file's metadata cannot be used: {error.message}")
            return otherwise

    tables = usable("labels and preprocessing", lambda: tables_of(data), SubgraphMetadata())
    preprocessing = usable("preprocessing", lambda: _preprocessing(signature.inputs, tables.inputs), NOTHING)
    labels = usable("labels", lambda: _labels(data, signature.outputs, tables.outputs), NOTHING)
    return preprocessing.over(labels), tuple(notices)


def tables_of(data: bytes) -> SubgraphMetadata:
    """Returns the metadata of a verified file; empty if it has none. Raises `MalformedModel`."""
    model = tflite.Model.GetRootAs(data, 0)
    for index in range(model.MetadataLength()):
        entry = model.Metadata(index)
        if entry.Name() == _BUFFER:
            raw = bytes_of_buffer(model, data, entry.Buffer(), "the metadata")
            return read_tables(bytes(raw or b""))
    return SubgraphMetadata()


def _preprocessing(inputs: Sequence[TensorSpec], described: Sequence[TensorMetadata]) -> ModelMetadata:
    """Returns the mean, standard deviation and layout of the image inputs. These values must be the same for all image
    inputs.
    """
    found = {
        _image(spec, tensor)
        for spec, tensor in _pairs(inputs, described, "inputs")
        if spec.is_image and tensor.content in (0, IMAGE_PROPERTIES)
    }
    if len(found) > 1:
        raise InvalidInput("the image inputs have different ones")
    return next(iter(found), NOTHING)


def _image(spec: TensorSpec, tensor: TensorMetadata) -> ModelMetadata:
    layout = Layout.NHWC if tensor.content == IMAGE_PROPERTIES and spec.shape[3] in (1, 3) else None
    if not tensor.normalizations:
        return ModelMetadata(layout=layout)
    theirs = tensor.normalizations[0]  # the file's values are for pixels; `ModelMetadata` needs values for pixel / 255
    mean, std = ([value / _WHITE for value in values] for values in (theirs.mean or (0.0,), theirs.std or (1.0,)))
    found = ModelMetadata(mean=tuple(mean), std=tuple(std))
    check_pixels(spec, found)
    return replace(found, layout=layout)


def _labels(data: bytes, outputs: Sequence[TensorSpec], described: Sequence[TensorMetadata]) -> ModelMetadata:
    """Returns the labels of the outputs. All outputs that have labels must have the same labels."""
    found = {
        ModelMetadata(labels)
        for spec, tensor in _pairs(outputs, described, "outputs")
        if (labels := _labels_of(data, spec, tensor))
    }
    if len(found) > 1:
        raise InvalidInput("the outputs have different ones")
    return next(iter(found), NOTHING)


def _labels_of(data: bytes, spec: TensorSpec, tensor: TensorMetadata) -> tuple[str, ...]:
    """Returns the labels of one output. If there are several translations, returns the translation without a locale, or
    else the first translation.
    """
    files = [each for each in tensor.files if each.kind == TENSOR_AXIS_LABELS]
    if not files:
        return ()
    name = next((each.name for each in files if not each.locale), files[0].name)
    archive = Archive(
        data[-_ARCHIVE_BYTES:], largest_deflated_bytes=_ARCHIVE_BYTES, most_deflated_bytes=4 * _ARCHIVE_BYTES
    )
    labels = tuple(map(printable, parse_labels(archive.text(name))))
    classes = spec.shape[-1] if spec.shape else 1
    if len(labels) != classes:
        raise InvalidInput(
            f"there are {len(labels)} of them in {printable(name)!r}, and {classes} classes in the output"
        )
    return labels


def _pairs(
    specs: Sequence[TensorSpec], described: Sequence[TensorMetadata], what: str
) -> list[tuple[TensorSpec, TensorMetadata]]:
    """Returns pairs of a tensor and its metadata, or an empty list if the file describes no tensors. Raises
    `MalformedModel`.
    """
    if described and len(described) != len(specs):
        raise MalformedModel(f"the metadata describes {len(described)} {what}, but the model has {len(specs)}")
    return list(zip(specs, described, strict=False))
