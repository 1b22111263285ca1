"""Results of models by task: labels with scores, boxes, embeddings, or numbers in real units.

The form of a result, as JSON:

    classify, classify-images   {"classes": [{"label": "cat", "score": 0.93}, …]}, best first
    detect                      {"boxes": [{"label": "cat", "score": 0.9, "left": 0.1, "top": …, "right": …, …}, …]}
    embed                       {"embedding": [0.01, …]}
    rerank                      {"score": 0.87}
    classify-tokens             {"spans": [{"label": "PER", "score": 0.99, "start": 0, "end": 5, "text": "Alice"}, …]}
    none of these               {"outputs": [{"name": "y", "shape": [1, 3], "values": [[…]]}]}, null if not finite

Boxes are in fractions of the width and the height of the model's input. Spans begin and end at characters (Unicode code
points) of the text. Quantized outputs are converted to real values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.metadata import Layout, ModelMetadata
from service.core.models.signature import TensorSpec
from service.core.models.task import Task
from service.core.models.text import Side, TextProcessing
from service.runtime.results.boxes import LEAST_SCORE, boxes_of
from service.runtime.results.pooling import normalized, pool
from service.runtime.results.scoring import activated as activated
from service.runtime.results.scoring import label_of
from service.runtime.results.spans import TokenizedText, spans_of

_TOP_CLASSES = 5

Result = dict[str, Any]


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


def picture_size(specs: Sequence[TensorSpec], metadata: ModelMetadata) -> tuple[int, int] | None:
    """Returns the height and the width of the picture that is a model's only input; None for other models."""
    if len(specs) != 1 or len(specs[0].shape) != 4:
        return None
    _, second, third, fourth = specs[0].shape
    is_last = metadata.layout is Layout.NHWC if metadata.layout else fourth in (1, 3, 4)
    return (second, third) if is_last else (third, fourth)


def _as(values: Array, spec: TensorSpec) -> Array:
    converted: Array = values.astype(spec.dtype)
    return converted


def result_of(
    outputs: Mapping[str, Array],
    metadata: ModelMetadata,
    *,
    top: int | None = None,
    tokens: int | None = None,
    source: TokenizedText | None = None,
    size: tuple[int, int] | None = None,
    least_score: float = LEAST_SCORE,
) -> Result:
    """Returns the result of one sample.

    Args:
        outputs: real values by name, in the model's order. The first dimension of each output is 1, or missing.
        top: the number of classes or boxes to return, the best first; None for 5 classes or 100 boxes.
        tokens: the number of tokens of the text; the others are padding. None without padding.
        source: the text and its tokens, for the task `classify-tokens`.
        size: the height and the width of the input, for the task `detect` (`picture_size`).
        least_score: boxes with a lower score are left out.

    Raises:
        InvalidInput: the outputs do not have the form that the task needs, the text is missing, or a score or an
            embedding is not finite.
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
            return {"boxes": boxes_of(outputs, metadata, size, top, least_score)}
        case Task.CLASSIFY_TOKENS:
            if source is None:
                raise InvalidInput(
                    "the spans of a text need the text itself, not tensors",
                    hint="send text; POST /v2/models/MODEL/infer returns the scores of each token",
                )
            return {"spans": spans_of(first, source, metadata)}
        case Task.CLASSIFY | Task.CLASSIFY_IMAGES:
            return {"classes": _classes(first, metadata, top)}
    return {
        "outputs": [
            {"name": name, "shape": list(value.shape), "values": listed(value)} for name, value in outputs.items()
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


def listed(values: Array) -> Any:
    """Returns the values in nested lists, with None in place of NaN and infinities, which JSON cannot contain."""
    listed = values.astype(object)
    listed[~np.isfinite(values)] = None
    return listed.tolist()


def _classes(values: Array, metadata: ModelMetadata, top: int | None) -> list[Result]:
    """Returns the classes with the highest scores; of equal ones, the lower class first."""
    if values.size != values.shape[-1]:
        raise InvalidInput(f"an output of shape {list(values.shape)} does not have one score for each class")
    scores = activated(values.reshape(-1), metadata.activation)
    best = np.argsort(-scores, kind="stable")[: _TOP_CLASSES if top is None else top]
    return [{"label": label_of(int(index), metadata), "score": float(scores[index])} for index in best]


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
    return normalized(vector) if text.normalize else vector
