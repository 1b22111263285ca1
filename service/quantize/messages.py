"""The messages and files between a quantizing child (`quantize.child`) and its parent (`quantize.sandboxed`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.compiler.messages.message import Message
from service.compiler.messages.role import Empty, Role
from service.core.builds.quantization import QuantizationOptions

QUANTIZED_FILE, REPORT_FILE = ".quantized.onnx", ".report.json"


@dataclass(frozen=True)
class QuantizeRequest(Message):
    """A quantization.

    Attributes:
        model: a float model.
        data: the name of the inputs in the working directory.
        labels: a CSV file. None without labels, or if an archive of inputs contains them.
        held_out: the path, in the working directory, of the inputs that the loss is measured on; None for `data`.
        held_out_labels: like `labels`, for `held_out`.
        made: the directory in which the parent puts the models that the child requested.
        shapes: the shapes of inputs that the model leaves open.
        fixed: the values of inputs that become constants.
    """

    model: Path
    data: Path
    labels: Path | None
    held_out: Path | None
    held_out_labels: Path | None
    made: Path
    options: QuantizationOptions
    shapes: Mapping[str, Sequence[int]]
    fixed: Mapping[str, Sequence[Any]]


QUANTIZE = Role("quantize", QuantizeRequest, Empty)


def answer_file(number: int) -> str:
    """Returns the name of the file in `made` that describes the model of the child's request with this number."""
    return f"{number}.json"
