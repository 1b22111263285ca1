"""Runs a quantization in a sandboxed child, which does everything from reading the files to writing the report. This
module is the child's parent, and does not load TVM.

The child (`quantize.child`) parses the model, unpacks inputs, runs models built from it, and writes the quantized file.
The child cannot start processes, so it requests builds from its parent. The child sends the name of a file, and reads
the built model in a directory to which the child cannot write. Like the uploaded model, its results are untrusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from service.compiler.build.background import in_background
from service.compiler.messages.checking import ArtifactFiles
from service.compiler.sandbox import Access, Limits, run_child
from service.core.builds.build import Progress, Stage
from service.core.builds.fixed import Fixed, without_fixed
from service.core.builds.quantization import QuantizationOptions
from service.core.errors import BuildFailed
from service.core.settings import Settings
from service.quantize.calibration.building import build
from service.quantize.messages import QUANTIZE, QUANTIZED_FILE, REPORT_FILE, QuantizeRequest, answer_file

_MOST_BUILDS = 64  # limit for each child; a child needs up to four builds, and one for each mixture that it times
_MOST_REPORT_BYTES = 64 << 20
_HELD_OUT = Path("held-out")


@dataclass(frozen=True)
class Request:
    """A request for a quantization. All paths are absolute.

    Attributes:
        model: a float model in one of `formats.FORMATS`. For ONNX, it may also be an archive that contains its weights.
        data: the inputs, in a form that `quantize.calibration.data.Data` accepts; None if the options need none.
        labels: a CSV file; None if there are none, or if the archive of inputs contains them.
        held_out: other inputs, on which the loss of accuracy is measured; None to measure it on `data`.
        held_out_labels: like `labels`, for `held_out`.
        name: the name of the inputs in error messages.
        shapes: the shapes of inputs that the model leaves open.
        fixed: the values of inputs that become constants, so that the result does not have these inputs.
    """

    model: Path
    data: Path | None
    options: QuantizationOptions
    labels: Path | None = None
    held_out: Path | None = None
    held_out_labels: Path | None = None
    name: str = "inputs"
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    fixed: Fixed = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The result of a quantization.

    Attributes:
        file: the quantized model, in the scratch directory.
        report: the report that the child wrote; see docs/how-to/quantize.md.
    """

    file: Path
    report: dict[str, Any]


def quantize(request: Request, scratch: Path, progress: Progress, settings: Settings, limits: Limits) -> Result:
    """Quantizes a model.

    Args:
        scratch: an empty directory; the caller removes it.
        limits: the limits of the child. Builds have their own limits.

    Raises:
        OctetError: the model or the inputs cannot be used, or do not fit the settings' limits.
        BuildCanceled: `progress` raises it if the build was canceled.
    """
    own, made = scratch.absolute() / "own", scratch.absolute() / "made"
    own.mkdir()
    made.mkdir()
    if request.data is not None:
        # error messages contain this name instead of the path of an upload
        (own / request.name).symlink_to(request.data)
    held_out = None if request.held_out is None else _HELD_OUT / request.held_out.name
    if held_out is not None and request.held_out is not None:
        (own / _HELD_OUT).mkdir()
        (own / held_out).symlink_to(request.held_out)
    with in_background(1) as start:
        session = _Session(request, own, made, progress, settings, start)
        files = (request.model, request.data, request.labels, request.held_out, request.held_out_labels, made)
        readable = [path for path in files if path is not None]
        run_child(
            QUANTIZE.name,
            QuantizeRequest(
                request.model,
                Path(request.name),
                request.labels,
                held_out,
                request.held_out_labels,
                made,
                request.options,
                request.shapes,
                request.fixed,
            ).to_json(),
            access=Access(readable=tuple(readable), writable=(own,)),
            limits=limits,
            on_message=session.handle_message,
            poll=session.poll,
            allow_unsandboxed=settings.allow_unsandboxed,
        )
    return _result(own, scratch, settings)


def _result(own: Path, scratch: Path, settings: Settings) -> Result:
    """Returns the result that the child wrote into `own`."""
    file, report = scratch / "quantized.onnx", scratch / "report.json"
    _copy_regular(own / QUANTIZED_FILE, file, settings.max_upload_bytes)
    _copy_regular(own / REPORT_FILE, report, _MOST_REPORT_BYTES)
    try:
        return Result(file, dict(json.loads(report.read_text())))
    except (ValueError, TypeError, RecursionError) as error:
        raise BuildFailed("the quantize process wrote an unreadable report") from error


class _Session:
    """The parent's part of a quantization: passes on the child's progress, and builds the models that it requests."""

    def __init__(
        self,
        request: Request,
        own: Path,
        made: Path,
        progress: Progress,
        settings: Settings,
        start: Callable[[Callable[[Callable[[], None]], ArtifactFiles]], Future[ArtifactFiles]],
    ) -> None:
        self._request, self._own, self._made = request, own, made
        self._progress, self._settings, self._start = progress, settings, start
        self._stage, self._fraction = Stage.CALIBRATE if request.options.takes_inputs else Stage.IMPORT, 0.0
        self._built: Future[ArtifactFiles] | None = None
        self._count = 0

    def handle_message(self, message: Mapping[str, Any]) -> None:
        if "stage" in message:
            self._stage, self._fraction = Stage(message["stage"]), float(message["fraction"])
            self._progress.stage(self._stage, self._fraction)
        elif "log" in message:
            self._progress.log(str(message["log"]))
        elif "make" in message:
            self._make(str(message["make"]))
        elif "discard" in message and self._built is None:
            self._discard(int(message["discard"]))

    def poll(self) -> None:
        """Reports progress, and passes a finished build to the child. If a build fails, raises its error, which ends
        the child.
        """
        self._progress.stage(self._stage, self._fraction)
        if self._built is not None and self._built.done():
            answer = self._made / answer_file(self._count)
            unfinished = answer.with_suffix(".new")
            unfinished.write_text(json.dumps(self._built.result().to_json()))
            unfinished.rename(answer)
            self._built = None

    def _make(self, name: str) -> None:
        self._count += 1
        if self._built is not None or self._count > _MOST_BUILDS:
            raise BuildFailed("the quantize process requested too many builds")
        source, directory = self._made / f"{self._count}.onnx", self._made / str(self._count)
        _copy_regular(self._own / Path(name).name, source, self._settings.max_upload_bytes)
        directory.mkdir()
        self._built = self._start(partial(self._build, source, directory))

    def _discard(self, number: int) -> None:
        if 1 <= number <= self._count:
            shutil.rmtree(self._made / str(number), ignore_errors=True)
            (self._made / f"{number}.onnx").unlink(missing_ok=True)

    def _build(self, source: Path, directory: Path, poll: Callable[[], None]) -> ArtifactFiles:
        shapes = without_fixed(self._request.shapes, self._request.fixed)
        return build(source, directory, _PollingProgress(poll), self._settings, shapes)


class _PollingProgress:
    """The progress of a build that the child requested. Its stages are not those of the quantization, so it only
    polls.
    """

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll = poll

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        self._poll()

    def log(self, line: str) -> None:
        pass


def _copy_regular(source: Path, target: Path, most_bytes: int) -> None:
    """Copies a file that a child wrote to a directory where the child cannot change it.

    Raises:
        BuildFailed: the file does not exist, is not a regular file, or is too large.
    """
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BuildFailed(f"the quantize process did not write {source.name}") from error
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise BuildFailed(
                f"the quantize process wrote {source.name} with {status.st_size} bytes, or as something other than a "
                "regular file"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file, target.open("xb") as copy:
            shutil.copyfileobj(file, copy)
