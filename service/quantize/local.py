"""Quantizes a file on this machine, without a server."""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from service.compiler.importers.uploads import upload_of
from service.compiler.sandbox.policy import unlimited
from service.core.builds.build import Progress
from service.core.builds.fixed import Fixed
from service.core.builds.options import parse_open_shapes, shapes_of, with_sizes
from service.core.builds.quantization import MOST_SAMPLES, QuantizationOptions
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.settings import Settings
from service.quantize.sandboxed import Request, quantize

# A folder or file that `calibration.data.Data` reads, or the inputs themselves.
Inputs = str | Path | Iterable[Array | Mapping[str, Array]]
# A CSV file that `calibration.data.labels_of` reads, the class of each input, or the class of each picture by name.
Labels = str | Path | Sequence[int | str] | Mapping[str, int | str]

_MOST_BYTES = 1 << 40  # how much the child process may write
_Choice = TypeVar("_Choice", bound=StrEnum)


def quantize_to(
    file: Path,
    output: Path,
    options: QuantizationOptions,
    settings: Settings,
    progress: Progress,
    *,
    data: Inputs | None = None,
    labels: Labels | None = None,
    held_out: Inputs | None = None,
    held_out_labels: Labels | None = None,
    input_shape: str = "",
    fixed: Fixed | None = None,
    member: str = "",
    signature: str = "",
) -> dict[str, Any]:
    """Quantizes the float model in `file`, and writes the result to `output`. Returns the report.

    Args:
        file: the model, and for ONNX the files beside it that contain its weights.
        data: the calibration inputs; None if the options need none.
        labels: the class of each input; None if it is unknown.
        held_out: other inputs, on which the loss of accuracy is measured; None to measure it on `data`.
        held_out_labels: the class of each of them; None if it is unknown.
        input_shape: the shapes of inputs that the model leaves open, in the form of `octet compile --input-shape`.
        fixed: the values of inputs that become constants. The result does not have these inputs.
        member, signature: the part of a TFLite file or a bundle, as for `upload_of`.

    Raises:
        OctetError: an option, the model or an input cannot be used.
    """
    options.check(data is not None)
    if labels is not None and data is None:
        raise InvalidInput("labels need the inputs that they belong to", hint="pass the calibration inputs too")
    check_held_out(data, held_out, held_out_labels)
    require_folder(output)
    shapes = shapes_of(with_sizes([1], parse_open_shapes(input_shape))[0])
    with tempfile.TemporaryDirectory() as folder, upload_of(file, member, signature) as upload:
        inputs = None if data is None else inputs_file(data, Path(folder), options.samples)
        classes = None if labels is None else labels_file(labels, Path(folder))
        others, other_classes = _held_out_files(held_out, held_out_labels, Path(folder))
        name = "inputs" if inputs is None else inputs.name
        request = Request(upload.absolute(), inputs, options, classes, others, other_classes, name, shapes, fixed or {})
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        result = quantize(request, scratch, progress, settings, unlimited(_MOST_BYTES))
        shutil.copyfile(result.file, output)
    return result.report


def check_held_out(data: Inputs | None, held_out: Inputs | None, labels: Labels | None) -> None:
    """Checks that held-out inputs are given only if they can be used.

    Raises:
        InvalidInput: there are labels without inputs, or no calibration inputs, or the held-out inputs are these.
    """
    if labels is not None and held_out is None:
        raise InvalidInput("labels of held-out inputs need these inputs", hint="pass the held-out inputs too")
    if held_out is None:
        return
    if data is None:
        raise InvalidInput("held-out inputs need calibration inputs", hint="pass the calibration inputs too")
    are_paths = isinstance(held_out, str | Path) and isinstance(data, str | Path)
    if are_paths and Path(str(held_out)).resolve() == Path(str(data)).resolve():
        raise InvalidInput(f"{held_out} contains the calibration inputs", hint="pass other inputs than those")


def _held_out_files(held_out: Inputs | None, labels: Labels | None, folder: Path) -> tuple[Path | None, Path | None]:
    """Returns the paths of the held-out inputs and of their labels. Writes them to `folder` if they are in memory."""
    own = folder / "held-out"
    own.mkdir()
    inputs = None if held_out is None else inputs_file(held_out, own, MOST_SAMPLES)
    return inputs, None if labels is None else labels_file(labels, own)


def require_folder(file: Path) -> None:
    """Checks that a file can be written, before minutes of work: raises `InvalidInput` if its folder does not exist."""
    if not file.absolute().parent.is_dir():
        raise InvalidInput(f"{file}: the folder {file.parent} does not exist", hint="create it first")


def parse_choice(choices: type[_Choice], text: str, parameter: str) -> _Choice:
    """Returns the member of `choices` with the value `text`. Raises `InvalidInput` if there is none."""
    try:
        return choices(text)
    except ValueError as error:
        raise InvalidInput(f"{parameter} is {text!r}", hint=f"use one of: {', '.join(choices)}") from error


def inputs_file(data: Inputs, folder: Path, most: int) -> Path:
    """Returns the absolute path of the inputs. Writes them to `folder` first if they are in memory."""
    if isinstance(data, str | Path):
        return _existing(data, "the file or folder of inputs")
    from service.quantize.calibration.arrays import write_inputs

    path = folder / "inputs"
    write_inputs(data, path, most)
    return path


def labels_file(labels: Labels, folder: Path) -> Path:
    """Returns the absolute path of the labels. Writes them to `folder` first if they are in memory."""
    if isinstance(labels, str | Path):
        return _existing(labels, "the file of labels")
    path = folder / "labels.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(labels.items() if isinstance(labels, Mapping) else ((each,) for each in labels))
    return path


def _existing(path: str | Path, meaning: str) -> Path:
    if not Path(path).exists():
        raise InvalidInput(f"{meaning} does not exist: {path}")
    return Path(path).absolute()
