"""Results of models by task: labels with scores, boxes, embeddings, or numbers in real units.

The form of a result, as JSON:

    classify, classify-images   {"classes": [{"label": "cat", "score": 0.93}, …]}, best first
    detect                      {"boxes": [{"label": "cat", "score": 0.9, "left": 0.1, "top": …, "right": …, …}, …]}
    embed                       {"embedding": [0.01, …]}
    rerank                      {"score": 0.87}
    none of these               {"outputs": [{"name": "y", "shape": [1, 3], "values": [[…]]}]}, null if not finite

Boxes are in fractions of the width and the height of the model's input. Quantized outputs are converted to real values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from service.core.errors import InvalidInput, Unsupported
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import TensorSpec
from service.core.models.task import Activation, Task
from service.core.models.text import Side, TextProcessing
from service.runtime.results.pooling import pool

_TOP_CLASSES, _TOP_BOXES = 5, 100
_LEAST_SCORE = 0.5  # boxes with a lower score are left out
_BOXES, _CLASSES, _SCORES, _COUNT = range(4)  # the outputs of TFLite's detection operator

Result = dict[str, Any]
_Boxes = tuple[Array, Array, Array]  # left, top, right and bottom of each box; its class; its score


def real_values(outputs: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Returns the outputs in the order of `specs`, with real values (float32) in place of stored integers."""
    return {
        spec.name: outputs[spec.name] if spec.quantization is None else spec.quantization.real(outputs[spec.name])
        for spec in specs
    }


def stored_values(values: Any, spec: TensorSpec, batch: int = 1) -> Array:
    """Converts real values to the input `spec`: real / scale + zero_point, rounded to the nearest (halves to even) and
    clipped to the range of its type. An input without a scale gets the values themselves.

    Args:
        values: numbers, in nested lists or in one list of all elements.
        batch: the number of samples, for an input whose first dimension is dynamic.

    Raises:
        InvalidInput: these are not the numbers of such an input, or a value does not fit its type.
    """
    shape = [batch if size < 0 and axis == 0 else size for axis, size in enumerate(spec.shape)]
    try:
        real = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"the values of input {spec.name!r} are not numbers", tensor=spec.name) from error
    if real.shape != tuple(shape):
        try:
            real = real.reshape(shape)
        except ValueError as error:
            raise InvalidInput(
                f"input {spec.name!r} has shape {shape}, but {real.size} values were given", tensor=spec.name
            ) from error
    if spec.dtype.kind == "f":
        return _as(real, spec)
    if not np.isfinite(real).all():
        raise InvalidInput(f"a value of input {spec.name!r} is not finite", tensor=spec.name)
    if spec.dtype.kind == "b":
        return _as(real != 0, spec)
    limits = np.iinfo(spec.dtype)
    if spec.quantization is not None:
        rounded = np.rint(real / spec.quantization.scale) + spec.quantization.zero_point
        return _as(np.clip(rounded, limits.min, limits.max), spec)
    if (real != np.rint(real)).any() or real.min(initial=0) < limits.min or real.max(initial=0) > limits.max:
        raise InvalidInput(
            f"a value of input {spec.name!r} is not a whole number from {limits.min} to {limits.max}", tensor=spec.name
        )
    return _as(real, spec)


def _as(values: Array, spec: TensorSpec) -> Array:
    converted: Array = values.astype(spec.dtype)
    return converted


def result_of(
    outputs: Mapping[str, Array], metadata: ModelMetadata, *, top: int | None = None, tokens: int | None = None
) -> Result:
    """Returns the result of one sample.

    Args:
        outputs: real values by name, in the model's order. The first dimension of each output is 1, or missing.
        top: the number of classes or boxes to return, the best first; None for 5 classes or 100 boxes.
        tokens: the number of tokens of the text; the others are padding. None without padding.

    Raises:
        InvalidInput: the outputs do not have the form that the task needs, or a score or an embedding is not finite.
        Unsupported: the task is not computed here.
    """
    first = outputs[metadata.text.output] if metadata.text.output in outputs else next(iter(outputs.values()))
    task = metadata.task
    if task is None and metadata.labels and len(outputs) == 1 and len(metadata.labels) == first.size:
        task = Task.CLASSIFY
    if task is not None:
        _check_finite(outputs)
    match task:
        case Task.EMBED:
            return {"embedding": _embedding(first, metadata.text, tokens).tolist()}
        case Task.RERANK:
            return {"score": _score(first, metadata)}
        case Task.DETECT:
            return {"boxes": _boxes(list(outputs.values()), metadata, top)}
        case Task.CLASSIFY_TOKENS:
            raise Unsupported(
                "the spans of a text cannot be computed here",
                hint="POST /v2/models/MODEL/infer returns the scores of each token",
            )
        case Task.CLASSIFY | Task.CLASSIFY_IMAGES:
            return {"classes": _classes(first, metadata, top)}
    return {
        "outputs": [
            {"name": name, "shape": list(value.shape), "values": _listed(value)} for name, value in outputs.items()
        ]
    }


def _score(values: Array, metadata: ModelMetadata) -> float:
    if values.size != 1:
        raise InvalidInput(
            f"an output of shape {list(values.shape)} is not one score",
            hint="set text.output of the version to the name of the output with the score",
        )
    return float(activated(values.reshape(-1), metadata.activation)[0])


def _check_finite(outputs: Mapping[str, Array]) -> None:
    for name, value in outputs.items():
        if not np.isfinite(value).all():
            raise InvalidInput(
                f"the model's output {name!r} contains a value that is not finite",
                tensor=name,
                hint="check the input; POST /v2/models/MODEL/infer returns the outputs",
            )


def _listed(values: Array) -> Any:
    """Returns the values in nested lists, with None in place of NaN and infinities, which JSON cannot contain."""
    listed = values.astype(object)
    listed[~np.isfinite(values)] = None
    return listed.tolist()


def activated(values: Array, activation: Activation | None) -> Array:
    """Returns the scores of the last axis, in float64. None returns the values unchanged."""
    wide = values.astype(np.float64)
    match activation:
        case Activation.SOFTMAX:
            powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
            shares: Array = powers / powers.sum(axis=-1, keepdims=True)
            return shares
        case Activation.SIGMOID:
            small = np.exp(-np.abs(wide))  # at most 1, so that nothing overflows
            scores: Array = np.where(wide >= 0, 1, small) / (1 + small)
            return scores
        case Activation.TANH:
            hyperbolic: Array = np.tanh(wide)
            return hyperbolic
    return wide


def _classes(values: Array, metadata: ModelMetadata, top: int | None) -> list[Result]:
    """Returns the classes with the highest scores; of equal ones, the lower class first."""
    if values.size != values.shape[-1]:
        raise InvalidInput(f"an output of shape {list(values.shape)} does not have one score for each class")
    scores = activated(values.reshape(-1), metadata.activation)
    best = np.argsort(-scores, kind="stable")[: _TOP_CLASSES if top is None else top]
    return [{"label": _label(int(index), metadata), "score": float(scores[index])} for index in best]


def _label(index: int, metadata: ModelMetadata) -> str:
    return metadata.labels[index] if 0 <= index < len(metadata.labels) else str(index)


def _embedding(values: Array, text: TextProcessing, tokens: int | None) -> Array:
    """Returns the vector of one text in float32: pooled and normalized as the metadata defines."""
    vectors = values.reshape(-1, values.shape[-1]).astype(np.float32)
    vector: Array = vectors[0]
    if values.ndim == 3:
        count = len(vectors) if tokens is None else max(1, min(tokens, len(vectors)))
        used = vectors[-count:] if text.padding_side is Side.LEFT else vectors[:count]
        if not text.pooling:
            raise InvalidInput(
                "the model has a vector for each token, and its version has no pooling",
                hint="set text.pooling of the version, such as mean or cls",
            )
        vector = pool(used, text.pooling)
    if text.normalize:
        vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return vector


def _boxes(outputs: Sequence[Array], metadata: ModelMetadata, top: int | None) -> list[Result]:
    """Returns the boxes with the highest scores.

    Two forms of outputs are known: that of TFLite's detection operator (boxes as top, left, bottom, right; classes;
    scores; count), and that of DETR (logits of each query, with "no object" as the last class; boxes as center and
    size).
    """
    found = _tflite_boxes(outputs) or _detr_boxes(outputs, metadata)
    if found is None:
        shapes = ", ".join(str(list(value.shape)) for value in outputs)
        raise InvalidInput(
            f"outputs of shapes {shapes} are not boxes in the form of TFLite's detection operator or of DETR",
            hint="remove the version's task to get the outputs themselves",
        )
    corners, classes, scores = found
    order = [index for index in np.argsort(-scores, kind="stable") if scores[index] >= _LEAST_SCORE]
    names = "left", "top", "right", "bottom"
    return [
        {
            "label": _label(int(classes[index]), metadata),
            "score": float(scores[index]),
            **{name: float(value) for name, value in zip(names, corners[index], strict=True)},
        }
        for index in order[: _TOP_BOXES if top is None else top]
    ]


def _tflite_boxes(outputs: Sequence[Array]) -> _Boxes | None:
    if len(outputs) != 4 or outputs[_BOXES].shape[-1:] != (4,) or outputs[_COUNT].size != 1:
        return None
    count = int(outputs[_COUNT].reshape(-1)[0])
    corners = outputs[_BOXES].reshape(-1, 4)[:count, [1, 0, 3, 2]]
    return corners, outputs[_CLASSES].reshape(-1)[:count].astype(int), outputs[_SCORES].reshape(-1)[:count]


def _detr_boxes(outputs: Sequence[Array], metadata: ModelMetadata) -> _Boxes | None:
    if len(outputs) < 2 or outputs[1].shape[-1:] != (4,) or outputs[0].shape[:-1] != outputs[1].shape[:-1]:
        return None
    logits = outputs[0].reshape(-1, outputs[0].shape[-1])
    shares = activated(logits, metadata.activation or Activation.SOFTMAX)[:, :-1]
    centers, sizes = np.split(outputs[1].reshape(-1, 4).astype(np.float64), 2, axis=-1)
    corners = np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=-1)
    return corners, shares.argmax(axis=-1), shares.max(axis=-1)
