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
    """A layer operand whose columns are observed; see `children.columns`.

    Attributes:
        tensor: the index of the operand among the model's inputs and outputs.
        rounding: the operand's quantization: the smallest and the largest quantized value, the scale and the zero
            point.
        size: the number of elements of a column.
        products: true if `columns.products` is computed too, and not only `columns.means`.
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
    """The base class of requests that run models on every input in a file.

    Attributes:
        inputs: the file, which contains the inputs one after another.
        threads: the number of threads to run with; 0 for all cores.
    """

    inputs: Path
    threads: int


@dataclass(frozen=True)
class ModelRequest(_Observation):
    model: ArtifactFiles


@dataclass(frozen=True)
class ChannelsRequest(ModelRequest):
    """A request for the minimum and the maximum of each channel of some outputs.

    Attributes:
        outputs: the indices of these outputs.
    """

    outputs: tuple[int, ...]


@dataclass(frozen=True)
class HistogramsRequest(ModelRequest):
    """A request for a histogram of the values of each input and output of a model.

    Attributes:
        bins: the number of bins of each histogram.
        ranges: the lowest and the highest value of each histogram, first for the inputs and then for the outputs.
    """

    bins: int
    ranges: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class MomentsRequest(ModelRequest):
    layers: Sequence[Columns]


@dataclass(frozen=True)
class SwitchedRequest(ModelRequest):
    """A request to run a model whose last input is a vector of switches.

    Attributes:
        switches: the vectors; the model runs on each input once with each vector.
    """

    switches: Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class CompareRequest(_Observation):
    """A request to compare the outputs of two models. Their outputs have the same shapes."""

    models: tuple[ArtifactFiles, ArtifactFiles]


@dataclass(frozen=True)
class InputCount(Message):
    """The number of inputs that were read. The observations are in files."""

    inputs: Count


@dataclass(frozen=True)
class PairRequest(Message):
    """A request to time two models, which run in turns for about `seconds`."""

    models: tuple[ArtifactFiles, ArtifactFiles]
    seconds: float
    threads: int


@dataclass(frozen=True)
class PairResult(Message):
    """The number of calls of each model. The times are in `OBSERVED_FILE`."""

    rounds: Count


EXTREMES = Role("extremes", ModelRequest, InputCount)
CHANNELS = Role("channels", ChannelsRequest, InputCount)
HISTOGRAMS = Role("histograms", HistogramsRequest, InputCount)
COMPARE = Role("compare", CompareRequest, InputCount)
MOMENTS = Role("moments", MomentsRequest, InputCount)
SWITCHED = Role("switched", SwitchedRequest, InputCount)
PAIR = Role("pair", PairRequest, PairResult)
