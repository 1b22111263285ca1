"""An IR as plain values: the file's contents after they were checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.importers.openvino.attributes import Attributes

Entry = tuple[int, int]  # the id of a layer, and the index of one of its outputs

PARAMETER, RESULT, CONSTANT = "Parameter", "Result", "Const"


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer.

    Attributes:
        index: the position in the file, which gives the order of inputs and outputs.
        type: the operation, such as `Convolution`.
        version: its operation set, such as `opset1`; or `extension`, or the name of another set.
        inputs: the output that each input port reads, in the order of the ports.
        names: the names of the tensor of each output.
    """

    id: int
    index: int
    name: str
    type: str
    version: str
    attributes: Attributes
    inputs: tuple[Entry, ...]
    names: tuple[tuple[str, ...], ...]

    @property
    def label(self) -> str:
        """The layer as error messages name it: `Convolution conv1`."""
        return self.attributes.label


@dataclass(frozen=True, eq=False)
class Model:
    """The graph. Its layers are sorted, so that each comes after those that it reads.

    Attributes:
        version: the version of the IR: 10 or 11.
        metadata: texts that the model's author or a tool stored (`rt_info`), by their path.
    """

    name: str
    version: int
    layers: tuple[Layer, ...]
    metadata: Mapping[str, str]
