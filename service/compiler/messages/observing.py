"""Requests and results of the roles that run models for quantization (`children.observing_roles`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from service.compiler.messages.checking import ArtifactFiles
from service.compiler.messages.message import Count, Message
from service.compiler.messages.role import Role
from service.core.models.signature import ModelSignature


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
class ObservedModel(ArtifactFiles):
    """A model whose last inputs may be parameters, which have the same values for all inputs of a pass.

    Attributes:
        parameters: a file of sets of values, `[sets, size]` float32. A set contains the values of all parameters, one
            after another. None if the model has no parameters.
        owners: for each parameter, the index of the group that it belongs to. A row selects a set for each group.
    """

    parameters: Path | None = None
    owners: tuple[int, ...] = ()

    @property
    def signature(self) -> ModelSignature:
        """The signature without parameters."""
        whole = self.config.signature
        return replace(whole, inputs=whole.inputs[: len(whole.inputs) - len(self.owners)])

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.paths, *([self.parameters] if self.parameters else []))


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
    model: ObservedModel


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
    """A request to run a model on each input once with each row of parameters.

    Attributes:
        rows: for each group of parameters, the index of the set from which its values are taken.
    """

    rows: Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class CompareRequest(_Observation):
    """A request to compare two models. The first model has the outputs of the second model, and maybe further ones."""

    models: tuple[ObservedModel, ObservedModel]


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
