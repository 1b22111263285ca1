"""A model's inputs and outputs, as a client sees them."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from service.core.errors import CorruptBlob, Unsupported

if TYPE_CHECKING:  # NumPy is loaded by who has tensors: what only decides has none, and would pay 9 MB
    import numpy as np
    from numpy.typing import NDArray

# Open Inference Protocol datatype -> name of the numpy dtype, little-endian as on the wire.
DATATYPES: Mapping[str, str] = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP32": "float32",
}
_BY_DTYPE = {dtype: datatype for datatype, dtype in DATATYPES.items()}


def datatype_of(dtype: str) -> str:
    """`uint8` -> `UINT8`, `float32` -> `FP32`. Raises KeyError for a dtype that no signature can hold."""
    return _BY_DTYPE[dtype]


@dataclass(frozen=True)
class Quantization:
    """real = scale * (stored - zero_point), per tensor."""

    scale: float
    zero_point: int

    def real(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """The real values of `stored` integers: exact for up to 16 bits until they are rounded once, to float32."""
        import numpy as np

        with np.errstate(over="ignore"):
            return ((stored.astype(np.float64) - self.zero_point) * self.scale).astype(np.float32)


@dataclass(frozen=True)
class Bounds:
    """The values that an input is meant to have, both ends among them.

    Of an integer, those that are valid: ids of a vocabulary, truths of a mask. Of a real value, those that it was
    calibrated for: beyond them it saturates.
    """

    low: float
    high: float


@dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Attributes:
        datatype: the protocol's name.
        shape: -1 where a dimension is dynamic.
        bounds: of an input, where the model says them.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    quantization: Quantization | None = None
    bounds: Bounds | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        import numpy as np

        return np.dtype(DATATYPES[self.datatype])

    @property
    def image_axes(self) -> tuple[int, int, int] | None:
        """Axes of rows, columns and channels, where a picture can be fed: `[N, H, W, 1 or 3]`, or `[N, 1 or 3, H, W]`,
        of 8-bit or float elements."""
        if len(self.shape) != 4 or self.datatype not in ("UINT8", "INT8", "FP32"):
            return None
        return (1, 2, 3) if self.shape[3] in (1, 3) else (2, 3, 1) if self.shape[1] in (1, 3) else None

    @property
    def is_image(self) -> bool:
        """Whether a picture can be fed here."""
        return self.image_axes is not None

    def batched(self, batch: int) -> TensorSpec:
        """The same for `batch` samples.

        Raises:
            Unsupported: it is not of one sample.
        """
        if batch == 1:
            return self
        if not self.shape or self.shape[0] != 1:
            raise Unsupported(
                f"{self.name!r} has shape {list(self.shape)}: only a model of one sample has other batch sizes",
                hint="push it without them",
            )
        return replace(self, shape=(batch, *self.shape[1:]))

    def to_json(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}
        if self.quantization:
            spec["quantization"] = {"scale": self.quantization.scale, "zero_point": self.quantization.zero_point}
        if self.bounds:
            spec["bounds"] = {"low": self.bounds.low, "high": self.bounds.high}
        return spec

    @staticmethod
    def from_json(spec: Mapping[str, Any]) -> TensorSpec:
        quantization, bounds = spec.get("quantization"), spec.get("bounds")
        return TensorSpec(
            spec["name"],
            spec["datatype"],
            tuple(spec["shape"]),
            Quantization(quantization["scale"], quantization["zero_point"]) if quantization else None,
            Bounds(bounds["low"], bounds["high"]) if bounds else None,
        )


@dataclass(frozen=True)
class State:
    """A tensor that a model keeps from one call of a sequence to the next.

    Attributes:
        spec: as of an input; its shape is static.
        initial: its elements before the first call: little-endian, C order.
    """

    spec: TensorSpec
    initial: bytes

    def first(self) -> NDArray[Any]:
        """The elements before the first call, read-only."""
        import numpy as np

        return np.frombuffer(self.initial, self.spec.dtype).reshape(self.spec.shape)

    def to_json(self) -> dict[str, Any]:
        """`initial` is one number where all elements are the same, or else the bytes in base64."""
        width = self.spec.dtype.itemsize
        uniform = self.initial == self.initial[:width] * (len(self.initial) // width)
        value = self.first().reshape(-1)[0].item() if uniform else None
        exact = value is not None and math.isfinite(value)
        return {**self.spec.to_json(), "initial": value if exact else base64.b64encode(self.initial).decode("ascii")}

    @staticmethod
    def from_json(state: Mapping[str, Any]) -> State:
        spec, initial = TensorSpec.from_json(state), state["initial"]
        if isinstance(initial, str):
            data = base64.b64decode(initial, validate=True)
        else:
            import numpy as np

            data = np.full(spec.shape, initial, spec.dtype).tobytes()
        if len(data) != math.prod(spec.shape) * spec.dtype.itemsize:
            raise CorruptBlob(f"the state {spec.name!r} of shape {list(spec.shape)} has {len(data)} bytes")
        return State(spec, data)


@dataclass(frozen=True)
class ModelSignature:
    """Inputs and outputs in the order in which the model file declares them, and what it keeps between calls.

    Attributes:
        states: where there are some, the calls of a model form sequences, and each call's answer depends on those
            before it. The compiled function takes them after the inputs, and gives the next ones after the outputs.
        pads: whether shorter inputs may be filled up with zeros to these shapes: a build has found the answers to them
            equal, bit for bit, to those of the model at their own length.
        buckets: where dimensions are dynamic, the signatures that the model is built for, ascending.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[State, ...] = ()
    pads: bool = False
    buckets: tuple[ModelSignature, ...] = ()

    @property
    def largest(self) -> ModelSignature:
        """The largest bucket; itself where no dimension is dynamic."""
        return self.buckets[-1] if self.buckets else self

    def batched(self, batch: int) -> ModelSignature:
        """The same for `batch` samples at a time, of a model that takes one.

        Raises:
            Unsupported: an input or output is not of one sample, or the model keeps state.
        """
        if batch == 1:
            return self
        if self.states:
            raise Unsupported(
                "the model keeps state between calls, and each sequence has its own: it has no other batch sizes",
                hint="push it without them",
            )
        inputs, outputs = (tuple(spec.batched(batch) for spec in specs) for specs in (self.inputs, self.outputs))
        return ModelSignature(inputs, outputs)

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            **({"states": [state.to_json() for state in self.states]} if self.states else {}),
            **({"pads": True} if self.pads else {}),
        }

    @staticmethod
    def from_json(signature: Mapping[str, Any]) -> ModelSignature:
        return ModelSignature(
            tuple(TensorSpec.from_json(spec) for spec in signature["inputs"]),
            tuple(TensorSpec.from_json(spec) for spec in signature["outputs"]),
            tuple(State.from_json(state) for state in signature.get("states", ())),
            signature.get("pads") is True,
        )
