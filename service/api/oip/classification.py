"""Triton's classification extension: the best elements of an output, as text.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_classification.md
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from service.api.oip.tensors import Array
from service.core.errors import Unsupported


@dataclass(frozen=True)
class Classes:
    """An `outputs.Output` whose elements say `score:index`, or `score:index:label` where the model has labels.

    Attributes:
        shape: `[count]`, or `[N, count]` of a model that takes batches.
        texts: of each sample the greatest score first, and of equal ones the lower index.
    """

    name: str
    shape: tuple[int, ...]
    texts: list[str]
    datatype: ClassVar[str] = "BYTES"

    def elements(self) -> list[str]:
        return self.texts

    def packed(self) -> bytes:
        """Each text after its length, a little-endian uint32."""
        encoded = [text.encode() for text in self.texts]
        return b"".join(struct.pack("<I", len(each)) + each for each in encoded)


def classes_of(name: str, output: Array, count: int, is_batched: bool, labels: Sequence[str] = ()) -> Classes:
    """The `count` greatest elements of each sample, or all if there are fewer; a score is the element.

    Args:
        is_batched: whether the model takes batches (`max_batch_size` of its configuration is not 0); an index then
            counts the elements of one sample, or else those of the whole output.
        labels: of the model's classes; they stand for the elements only where there are as many.

    Raises:
        Unsupported: it holds NaN, which is neither greater nor less.
    """
    if output.dtype.kind == "f" and np.isnan(output).any():
        raise Unsupported(f"output {name!r} holds NaN, so no element is its greatest", tensor=name)
    numbers = output.view(np.uint8) if output.dtype == np.bool_ else output
    samples = numbers.reshape(len(output) if is_batched else 1, -1)
    count = min(count, samples.shape[1])
    named = [f":{label}" for label in labels] if len(labels) == samples.shape[1] else [""] * samples.shape[1]
    texts = [f"{scores[index]!s}:{index}{named[index]}" for scores in samples for index in _greatest(scores, count)]
    return Classes(name, (len(samples), count) if is_batched else (count,), texts)


def _greatest(scores: Array, count: int) -> list[int]:
    """The places of the greatest of `[K]`; only those are sorted, as an output may be as large as a picture."""
    least = np.partition(scores, -count)[-count]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    ascending = np.argsort(scores[above][::-1], kind="stable")
    return [*above[::-1][ascending][::-1].tolist(), *equal[: count - len(above)].tolist()]
