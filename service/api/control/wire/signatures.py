"""Schemas of a model's signature, metadata and facts."""

from __future__ import annotations

from pydantic import Field

from service.api.control.wire.base import Wire
from service.core.models.metadata import MAX_LABELS, Layout, Resize


class Blob(Wire):
    digest: str
    size_bytes: int


class Quantization(Wire):
    """real = scale * (stored - zero_point)."""

    scale: float
    zero_point: int


class Bounds(Wire):
    """The range of valid values, both ends included."""

    low: float
    high: float


class Tensor(Wire):
    name: str
    datatype: str = Field(description="A datatype of the Open Inference Protocol.", examples=["UINT8"])
    shape: list[int] = Field(description="The shape; -1 marks a dynamic dimension.")
    quantization: Quantization | None = None
    bounds: Bounds | None = Field(
        None, description="For an input: the range of valid ids, or of the real values that it was calibrated for."
    )


class State(Tensor):
    """A tensor that a model keeps from one call of a sequence to the next."""

    initial: bool | int | float | str = Field(
        description="The initial value of every element; all values in base64 if the elements differ."
    )


class Signature(Wire):
    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[State] = Field([], description="The states of a model whose calls form sequences.")


class Scheme(Wire):
    storage: list[str] = Field(examples=[["int8"]])
    granularity: list[str] = Field(examples=[["per-axis"]])
    symmetric: bool


class Metadata(Wire):
    """Labels and preprocessing. A member that is left out keeps its value, or the one from the model file."""

    labels: list[str] = Field([], max_length=MAX_LABELS, description="The names of the classes, from class 0.")
    mean: list[float] = Field(
        [],
        max_length=3,
        description="The mean of pixel / 255: one number for each channel, or one for all.",
        examples=[[0.485]],
    )
    std: list[float] = Field(
        [],
        max_length=3,
        description="The standard deviation of pixel / 255, in the same form; the input is (pixel / 255 - mean) / std.",
    )
    resize: Resize | None = Field(
        None,
        description="How a picture is fitted to the input's size: `stretch` (the default), or `crop`, which keeps "
        "the aspect ratio.",
    )
    layout: Layout | None = Field(None, description="The layout of the picture input, if its shape does not show it.")


class FloatGroup(Wire):
    """The operators of one type that compute in float for the same reason."""

    operator: str = Field(description="Their type in the model file; of a single operator, its name.")
    count: int
    macs: int = Field(description="Their multiply-accumulates of one call.")
    reason: str


class Facts(Wire):
    """Facts about a model that are known before it is compiled."""

    format: str
    signature: Signature
    operators: dict[str, int] = Field(description="The number of occurrences of each operator.")
    macs: int = Field(description="Multiply-accumulates of one call.")
    parameters: int
    parameter_bytes: int
    weights: Scheme | None
    activations: Scheme | None
    metadata: Metadata | None = Field(None, description="Labels and preprocessing from the file.")
    notices: list[str] = Field(
        [], description="Sentences for people: parts of the file that were left out, or that the model is float."
    )
    floating: list[FloatGroup] = Field([], description="The operators that compute in float.")
    integer_macs: int | None = Field(
        None, description="Multiply-accumulates in integers; null for a model that a release before 0.3 read."
    )
    computes: str = Field("", description="The class of a model whose weights alone are quantized, with their bits.")
