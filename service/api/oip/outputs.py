"""The outputs of an answer, by whichever wire they go: stored, real, or the best elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from service.api.oip.classification import classes_of
from service.api.oip.request import RequestedOutput
from service.api.oip.tensors import Array
from service.workers.inference import Served


class Output(Protocol):
    """A tensor of the protocol."""

    @property
    def name(self) -> str: ...

    @property
    def datatype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def elements(self) -> list[Any]:
        """For JSON, in row-major order."""

    def packed(self) -> bytes:
        """In the protocol's binary form."""


@dataclass(frozen=True)
class _Whole:
    name: str
    datatype: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def elements(self) -> list[Any]:
        elements: list[Any] = self.array.reshape(-1).tolist()
        return elements

    def packed(self) -> bytes:
        return self.array.tobytes()


def output_of(served: Served, wanted: RequestedOutput, arrays: Sequence[Array]) -> Output:
    """The form in which a request wants one of `arrays`, all the model's outputs. Raises `Unsupported` for the
    classification of NaN.
    """
    spec, array = served.signature.outputs[wanted.index], arrays[wanted.index]
    datatype = spec.datatype
    if wanted.dequantize:
        assert spec.quantization is not None
        datatype, array = "FP32", spec.quantization.real(array)
    if not wanted.classes:
        return _Whole(spec.name, datatype, array)
    return classes_of(spec.name, array, wanted.classes, is_batched=bool(served.batches), labels=served.metadata.labels)
