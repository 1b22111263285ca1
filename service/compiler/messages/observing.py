"""Requests and results of the roles that run models for quantization (`children.observing_roles`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.compiler.messages.checking import ArtifactFiles
from service.compiler.messages.message import Count, Message
from service.compiler.messages.role import Role


@dataclass(frozen=True)
class Windows(Message):
    """The windows in which a layer reads its operand. These attributes have the meaning of those of ONNX's Conv.

    Attributes:
        kernel: the size along each spatial axis of `[N, C, …]`. None for a matrix product, which reads the last axis.
        pads: the padding before each axis, then after each axis.
        auto_pad: `NOTSET`; or `VALID`, `SAME_UPPER` or `SAME_LOWER`, which override `pads`.
    """

    kernel: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    auto_pad: str = "NOTSET"
    groups: int = 1


@dataclass(frozen=True)
class Columns(Message):
    """The columns of a layer's operand to observe; see `children.columns`.

    Attributes:
        tensor: the index of the operand among the model's inputs and outputs.
        rounding: how the operand is stored: the smallest and the largest step, the scale and the zero point.
        size: the number of elements of a column.
        products: whether to sum products of elements, too.
    """

    tensor: int
    rounding: tuple[int, int, float, int]
    windows: Windows
    size: int
    products: bool

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        groups, wide = self.windows.groups, self.size + 1
        return [(groups, self.size), *([(groups, wide, wide)] if self.products else [])]


@dataclass(frozen=True)
class _Observation(Message):
    """Attributes of all requests for a pass over inputs.

    Attributes:
        inputs: the file of the inputs, one after another.
        threads: the number of threads to run with; 0 for all cores.
    """

    inputs: Path
    threads: int


@dataclass(frozen=True)
class ModelRequest(_Observation):
    model: ArtifactFiles


@dataclass(frozen=True)
class ChannelsRequest(ModelRequest):
    """A model whose channels are observed.

    Attributes:
        outputs: the indices of the outputs to observe.
    """

    outputs: tuple[int, ...]


@dataclass(frozen=True)
class HistogramsRequest(ModelRequest):
    """A model whose values are counted.

    Attributes:
        bins: the number of bins of each histogram.
        ranges: for each input and output, the range of its histogram.
    """

    bins: int
    ranges: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class MomentsRequest(ModelRequest):
    layers: Sequence[Columns]


@dataclass(frozen=True)
class SwitchedRequest(ModelRequest):
    """A model whose last input is a vector of switches.

    Attributes:
        switches: the values of the model's last input; the model runs once with each row.
    """

    switches: Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class CompareRequest(_Observation):
    """Two models with outputs of equal shapes."""

    models: tuple[ArtifactFiles, ArtifactFiles]


@dataclass(frozen=True)
class InputCount(Message):
    """The number of inputs that were read. The observations are in files."""

    inputs: Count


@dataclass(frozen=True)
class PairRequest(Message):
    """Two models that run in turns for about `seconds`."""

    models: tuple[ArtifactFiles, ArtifactFiles]
    seconds: float
    threads: int


@dataclass(frozen=True)
class PairResult(Message):
    """The number of calls of each model. The times are in a file."""

    rounds: Count


EXTREMES = Role("extremes", ModelRequest, InputCount)
CHANNELS = Role("channels", ChannelsRequest, InputCount)
HISTOGRAMS = Role("histograms", HistogramsRequest, InputCount)
COMPARE = Role("compare", CompareRequest, InputCount)
MOMENTS = Role("moments", MomentsRequest, InputCount)
SWITCHED = Role("switched", SwitchedRequest, InputCount)
PAIR = Role("pair", PairRequest, PairResult)
