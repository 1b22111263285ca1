"""The signature of a model: its inputs and outputs as clients see them, and the state that it keeps between calls."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from service.core.errors import CorruptBlob, Unsupported

if TYPE_CHECKING:  # NumPy takes 9 MB: only functions that handle tensors import it, when they are called
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
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
MOST_FIXED_ELEMENTS = 1 << 20
_MOST_SHOWN = 4  # the values of a fixed input that messages show
_BY_DTYPE = {dtype: datatype for datatype, dtype in DATATYPES.items()}


def datatype_of(dtype: str) -> str:
    """Returns the protocol's datatype: `uint8` -> `UINT8`, `float32` -> `FP32`.

    Raises:
        KeyError: no signature can contain this dtype.
    """
    return _BY_DTYPE[dtype]


@dataclass(frozen=True)
class Quantization:
    """Per-tensor quantization: real = scale * (stored - zero_point)."""

    scale: float
    zero_point: int

    def real(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the real values of `stored` integers. For integers of up to 16 bits, only the final conversion to
        float32 rounds.
        """
        import numpy as np

        with np.errstate(over="ignore"):
            return ((stored.astype(np.float64) - self.zero_point) * self.scale).astype(np.float32)


@dataclass(frozen=True)
class Bounds:
    """The range of an input's values, from `low` to `high`, both included.

    For an integer input, only values in the range are valid: ids of a vocabulary, or 0 and 1 of a mask. For a real
    input, it is the range that the input was calibrated for: values outside saturate.
    """

    low: float
    high: float


@dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Attributes:
        datatype: the name of the element type in the Open Inference Protocol.
        shape: the sizes of the dimensions; -1 for a dynamic dimension.
        bounds: the range of an input's values; None if the model gives none, and for outputs.
        varies: the axes along which shorter tensors are accepted, or returned for them.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    quantization: Quantization | None = None
    bounds: Bounds | None = None
    varies: tuple[int, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        import numpy as np

        return np.dtype(DATATYPES[self.datatype])

    @property
    def image_axes(self) -> tuple[int, int, int] | None:
        """The axes of rows, columns and channels if the tensor can hold a picture, else None.

        A tensor can hold a picture if its shape is `[N, H, W, C]` or `[N, C, H, W]` with C = 1 or 3, and its elements
        are 8-bit integers or float32.
        """
        if len(self.shape) != 4 or self.datatype not in ("UINT8", "INT8", "FP32"):
            return None
        return (1, 2, 3) if self.shape[3] in (1, 3) else (2, 3, 1) if self.shape[1] in (1, 3) else None

    @property
    def is_image(self) -> bool:
        """True if the tensor can hold a picture."""
        return self.image_axes is not None

    def batched(self, batch: int) -> TensorSpec:
        """Returns the same tensor for `batch` samples: the first dimension becomes `batch`.

        Raises:
            Unsupported: the first dimension of this tensor is not 1.
        """
        if batch == 1:
            return self
        if not self.shape or self.shape[0] != 1:
            raise Unsupported(
                f"{self.name!r} has shape {list(self.shape)}: a model can have other batch sizes only if it takes one "
                "sample",
                hint="push it without batch sizes",
            )
        return replace(self, shape=(batch, *self.shape[1:]))

    def to_json(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}
        if self.quantization:
            spec["quantization"] = {"scale": self.quantization.scale, "zero_point": self.quantization.zero_point}
        if self.bounds:
            spec["bounds"] = {"low": self.bounds.low, "high": self.bounds.high}
        if self.varies:
            spec["varies"] = list(self.varies)
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
            tuple(spec.get("varies", ())),
        )


@dataclass(frozen=True)
class State:
    """A state tensor: one that a model keeps from one call of a sequence to the next.

    Attributes:
        spec: the tensor's name, datatype and shape. The shape is static.
        initial: the tensor's elements before the first call: little-endian, C order.
    """

    spec: TensorSpec
    initial: bytes

    def first(self) -> NDArray[Any]:
        """Returns the elements before the first call, as a read-only array."""
        import numpy as np

        return np.frombuffer(self.initial, self.spec.dtype).reshape(self.spec.shape)

    def to_json(self) -> dict[str, Any]:
        """Writes `initial` as one number if all elements have the same finite value, else as base64 of the bytes."""
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
class FixedInput:
    """An input of the model file that the build has replaced by a constant, so that clients do not send it.

    Attributes:
        index: the position among the inputs of the file.
        spec: the input's name, datatype and shape. The shape is static, of at most `MOST_FIXED_ELEMENTS` elements.
        values: the elements in C order; or one value, which all elements have.
    """

    index: int
    spec: TensorSpec
    values: tuple[int | float, ...]

    def elements(self) -> NDArray[Any]:
        """Returns the elements as an array of the input's type and shape."""
        import numpy as np

        if len(self.values) == 1:
            return np.full(self.spec.shape, self.values[0], self.spec.dtype)
        return np.array(self.values, self.spec.dtype).reshape(self.spec.shape)

    def to_json(self) -> dict[str, Any]:
        return {"index": self.index, **self.spec.to_json(), "values": list(self.values)}

    @staticmethod
    def from_json(fixed: Mapping[str, Any]) -> FixedInput:
        spec, values = TensorSpec.from_json(fixed), tuple(fixed["values"])
        count = math.prod(spec.shape)
        if not 1 <= count <= MOST_FIXED_ELEMENTS or len(values) not in (1, count):
            raise CorruptBlob(f"the fixed input {spec.name!r} of shape {list(spec.shape)} has {len(values)} values")
        return FixedInput(int(fixed["index"]), spec, values)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.values[:_MOST_SHOWN])) + (", …" if len(self.values) > _MOST_SHOWN else "")
        return shown if len(self.values) == 1 else f"[{shown}]"


@dataclass(frozen=True)
class ModelSignature:
    """The inputs and outputs in the order in which the model file declares them, and the states.

    Attributes:
        states: the tensors that the model keeps between calls. If there are any, calls form sequences, and the result
            of a call depends on the calls before it. The compiled function takes the states after the inputs, and
            returns the next states after the outputs.
        pads: True if shorter inputs may be padded with zeros to these shapes. The build has checked that padding
            changes no bit of the result.
        buckets: if dimensions are dynamic, the signatures with static shapes that the model is built for, in ascending
            order.
        fixed: inputs of the model file that are not in `inputs`, because the build has replaced them by constants.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[State, ...] = ()
    pads: bool = False
    buckets: tuple[ModelSignature, ...] = ()
    fixed: tuple[FixedInput, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if a single artifact with this signature accepts shorter inputs."""
        return any(spec.varies for spec in self.inputs)

    @property
    def largest(self) -> ModelSignature:
        """The largest bucket, or this signature if no dimension is dynamic."""
        return self.buckets[-1] if self.buckets else self

    def batched(self, batch: int) -> ModelSignature:
        """Returns the signature of the same model for `batch` samples at a time. This signature has to be for one
        sample.

        Raises:
            Unsupported: an input or output holds more than one sample, or the model keeps state.
        """
        if batch == 1:
            return self
        if self.states:
            raise Unsupported(
                "the model keeps state between calls, separately for each sequence: it cannot have other batch sizes",
                hint="push it without batch sizes",
            )
        inputs, outputs = (tuple(spec.batched(batch) for spec in specs) for specs in (self.inputs, self.outputs))
        return ModelSignature(inputs, outputs, fixed=self.fixed)

    def complete(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Returns the inputs of the model file in its order: `inputs`, which are those of this signature, and the fixed
        ones.
        """
        complete = list(inputs)
        for each in sorted(self.fixed, key=lambda each: each.index):
            complete.insert(each.index, each.elements())
        return complete

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            **({"states": [state.to_json() for state in self.states]} if self.states else {}),
            **({"pads": True} if self.pads else {}),
            **({"fixed": [each.to_json() for each in self.fixed]} if self.fixed else {}),
        }

    @staticmethod
    def from_json(signature: Mapping[str, Any]) -> ModelSignature:
        return ModelSignature(
            tuple(TensorSpec.from_json(spec) for spec in signature["inputs"]),
            tuple(TensorSpec.from_json(spec) for spec in signature["outputs"]),
            tuple(State.from_json(state) for state in signature.get("states", ())),
            signature.get("pads") is True,
            fixed=tuple(FixedInput.from_json(each) for each in signature.get("fixed", ())),
        )
