"""Runs models on a data set in sandboxed children, and maps their outputs into memory.

The children write the outputs to files in a scratch directory. Nothing in these files is interpreted: the signature
determines the type, the shape and the size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.compiler.build.elsewhere import run_elsewhere
from service.compiler.children.locked import LockedArtifact
from service.compiler.importers.detect import format_of
from service.compiler.messages.files import OUTPUTS_FILE
from service.compiler.messages.role import Request, Result, Role
from service.compiler.references import REFERENCES, Reference
from service.compiler.references.environment import Environment
from service.compiler.sandbox import Access, run_child
from service.compiler.sandbox.policy import unlimited
from service.core.errors import BuildFailed, InvalidInput, Unsupported
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature
from service.core.settings import Settings
from service.core.verification.witnesses import Witness
from service.evaluate.choices import RUNTIMES
from service.evaluate.messages import (
    DRAW_INPUTS,
    PICTURE_FILE,
    RUN_ARTIFACT,
    RUN_ELSEWHERE,
    RUN_REFERENCE,
    WRITE_INPUTS,
    ArtifactRequest,
    DataSet,
    InputsRequest,
    PicturesRequest,
    RuntimeRequest,
    StoredRequest,
)

MOST_OUTPUT_BYTES = 64 << 30
_MOST_PICTURE_BYTES = 4 << 20
Tick = Callable[[str, float], None]
"""Receives the name of the runtime that computes, and the share of the inputs that it has computed."""

_PACKAGES = {reference.name: reference.package for reference in REFERENCES.values()}


@dataclass(frozen=True)
class Outputs:
    """The outputs of a model for all inputs of a data set.

    Attributes:
        arrays: one for each output of the model: `[inputs, *shape]`, in memory that is mapped from files.
    """

    arrays: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def of_input(self, number: int) -> list[Array]:
        return [array[number] for array in self.arrays]


@dataclass(frozen=True)
class ReferenceModel:
    """A model file in the reference runtime of its format.

    Attributes:
        source: the file; or an archive, as `importers.uploads.upload_of` makes it.
        version: the version of the runtime.
        environment: the Python environment in which the runtime runs; None for Octet's.
    """

    source: Path
    format: str
    numerics: str
    reference: Reference
    version: str
    environment: Environment | None = None

    @property
    def witness(self) -> Witness:
        return self.reference.witnesses(self.numerics, self.version)[0]


def reference_of(source: Path, numerics: str, against: str, settings: Settings) -> ReferenceModel:
    """Returns the model file in the runtime `against`, one of `RUNTIMES`. The runtime runs in the environment that the
    settings name (`OCTET_TORCH_PYTHON`, `OCTET_MXNET_PYTHON`, `OCTET_OPENVINO_PYTHON`), or else in Octet's.

    Raises:
        InvalidInput: `against` is not a runtime.
        Unsupported: the runtime does not define the numerics mode for such files, or is not installed.
    """
    name = RUNTIMES.get(against)
    if name is None:
        raise InvalidInput(f"{against!r} is not a reference runtime", hint=f"one of {', '.join(RUNTIMES)}")
    with source.open("rb") as file:
        model_format = format_of(file)
    reference = REFERENCES.get(model_format)
    if reference is None or reference.name != name:
        options = [option for option, each in RUNTIMES.items() if reference is not None and each == reference.name]
        suited = f"use --against {options[0]}" if options else "no runtime can"
        raise Unsupported(f"{name} does not run {model_format} files", hint=suited)
    if numerics not in reference.sessions:
        raise Unsupported(f"{name} does not define the numerics mode {numerics}", hint="compile it in another mode")
    environment, installed = reference.environment(settings), reference.version(settings)
    if installed is None:
        where = f"in the environment of {environment.python}" if environment else "here"
        elsewhere = f", or set OCTET_{reference.setting.upper()} to the interpreter of an environment that has it"
        hint = f"pip install {_PACKAGES[name]}{elsewhere if reference.setting and environment is None else ''}"
        raise Unsupported(f"{name} is not installed {where}", hint=hint)
    return ReferenceModel(source, model_format, numerics, reference, installed, environment)


def run_artifact(locked: LockedArtifact, data: DataSet, threads: int, scratch: Path, tick: Tick) -> Outputs:
    """Runs an artifact on the data set.

    Args:
        locked: an artifact that was read with limits. It needs a new process, because the caller may have threads.
        scratch: an empty directory, which exists as long as the result is used.

    Raises:
        OctetError: the data does not fit the model, or the artifact cannot run here.
    """
    stored = locked.stored
    request = ArtifactRequest(stored.config, stored.library.absolute(), stored.constants.absolute(), data, threads)
    result = locked.ask(
        RUN_ARTIFACT,
        request,
        readable=[data.path],
        writable=[scratch],
        on_message=lambda message: _relay(message, "octet", tick),
    )
    tick("octet", 1.0)
    return map_outputs(scratch, locked.signature, result.inputs)


def run_reference(
    model: ReferenceModel, signature: ModelSignature, data: DataSet, settings: Settings, scratch: Path, tick: Tick
) -> Outputs:
    """Runs a model file in its reference runtime on the data set. Raises the errors of `run_artifact`."""
    if model.environment is not None:
        return _run_elsewhere(model, model.environment, signature, data, settings, scratch, tick)
    request = RuntimeRequest(model.source.absolute(), model.format, model.numerics, signature, data)
    name = model.reference.name
    result = _run(
        RUN_REFERENCE,
        request,
        [model.source, data.path],
        scratch,
        settings,
        lambda message: _relay(message, name, tick),
    )
    tick(name, 1.0)
    return map_outputs(scratch, signature, result.inputs)


def _run_elsewhere(
    model: ReferenceModel,
    environment: Environment,
    signature: ModelSignature,
    data: DataSet,
    settings: Settings,
    scratch: Path,
    tick: Tick,
) -> Outputs:
    """Runs a model file in a runtime of another environment. That environment may lack the packages that read pictures,
    so a child of this one writes the inputs as tensors first.
    """
    inputs, name = scratch / "inputs", model.reference.name
    inputs.mkdir()
    wanted = InputsRequest(signature, data)
    count = _run(WRITE_INPUTS, wanted, [data.path], inputs, settings, lambda message: None).inputs
    request = StoredRequest(model.source.absolute(), model.format, model.numerics, signature, inputs.absolute(), count)
    try:
        members = run_elsewhere(
            environment,
            RUN_ELSEWHERE.name,
            request.to_json(),
            access=Access(readable=(model.source.absolute(), inputs.absolute()), writable=(scratch,)),
            limits=unlimited(MOST_OUTPUT_BYTES),
            on_message=None,
            poll=lambda: tick(name, 0.0),
            allow_unsandboxed=settings.allow_unsandboxed,
            on_cpu=lambda seconds: None,
        )
    except BuildFailed as error:
        raise Unsupported(f"{name} does not compute the model: {error.message}") from error
    tick(name, 1.0)
    return map_outputs(scratch, signature, RUN_ELSEWHERE.read_result(members).inputs)


def draw_inputs(
    data: DataSet, signature: ModelSignature, numbers: Sequence[int], settings: Settings, scratch: Path
) -> dict[int, bytes]:
    """Returns the inputs with these numbers as JPEG files; an empty mapping if the inputs are not pictures."""
    if not numbers or not signature.inputs[0].is_image:
        return {}
    request = PicturesRequest(data, signature, tuple(numbers))
    _run(DRAW_INPUTS, request, [data.path], scratch, settings, lambda message: None)
    return {number: _read(scratch / PICTURE_FILE.format(number), _MOST_PICTURE_BYTES) for number in numbers}


def map_outputs(scratch: Path, signature: ModelSignature, inputs: int) -> Outputs:
    """Maps the files that a child wrote.

    Raises:
        BuildFailed: a file is missing, is not a regular file, or has another size than the signature determines.
    """
    arrays = []
    for index, spec in enumerate(signature.outputs):
        shape = (inputs, *spec.shape)
        size_bytes = int(np.prod(shape)) * spec.dtype.itemsize
        descriptor = _open_regular(scratch / OUTPUTS_FILE.format(index))
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_size != size_bytes or not size_bytes:
                raise BuildFailed(f"the evaluate process did not write {size_bytes} bytes of output {spec.name!r}")
            arrays.append(np.memmap(file, spec.dtype, "r", shape=shape))
    return Outputs(tuple(arrays))


def _read(path: Path, most_bytes: int) -> bytes:
    with os.fdopen(_open_regular(path), "rb") as file:
        return file.read(most_bytes)


def _open_regular(path: Path) -> int:
    """Opens a file that a child wrote. Raises `BuildFailed` if it is missing or not a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BuildFailed(f"the evaluate process did not write {path.name}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BuildFailed(f"the evaluate process wrote {path.name} as something other than a regular file")
    return descriptor


def _run(
    role: Role[Request, Result],
    request: Request,
    readable: Sequence[Path],
    scratch: Path,
    settings: Settings,
    on_message: Callable[[Mapping[str, Any]], None],
) -> Result:
    members = run_child(
        role.name,
        request.to_json(),
        access=Access(readable=tuple(readable), writable=(scratch,)),
        limits=unlimited(MOST_OUTPUT_BYTES),
        on_message=on_message,
        allow_unsandboxed=settings.allow_unsandboxed,
    )
    return role.read_result(members)


def _relay(message: Mapping[str, Any], name: str, tick: Tick) -> None:
    if "stage" in message:
        tick(name, float(message["fraction"]))
