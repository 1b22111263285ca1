"""A quantization, done by one sandboxed child from the files to the report; this is its parent, and loads no TVM.

The child (`quantize.child`) reads the model's structure, unpacks inputs, runs what was built of the model, and writes
the quantized file. It cannot start processes, so it asks this one to build the models that it runs: it names a file,
and finds what was built of it in a directory that it may only read. What it leaves is as trustworthy as the model that
it was given: an upload.
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
from service.compiler.sandbox import Access, Limits, run_child
from service.core.build import Progress, Stage
from service.core.errors import BuildFailed
from service.core.quantization import QuantizationOptions
from service.core.settings import Settings
from service.quantize.building import Built, build

QUANTIZED_FILE, REPORT_FILE = ".quantized.onnx", ".report.json"
_MOST_BUILDS = 64  # a child's: one asks for three, and for one of each mixture that it times
_MOST_REPORT_BYTES = 64 << 20


@dataclass(frozen=True)
class Request:
    """A quantization. All paths are absolute.

    Attributes:
        model: a float model of one of `formats.FORMATS`; of ONNX, also an archive with its weights.
        data: inputs, as `quantize.data.Data` takes them; None where `options` take none.
        labels: a CSV; None where there is none besides that in an archive of inputs.
        name: what errors call the inputs.
        shapes: of inputs that the model leaves open.
    """

    model: Path
    data: Path | None
    options: QuantizationOptions
    labels: Path | None = None
    name: str = "inputs"
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """
    Attributes:
        file: the quantized model, below the scratch directory.
        report: as the child wrote it; see docs/how-to/quantize.md.
    """

    file: Path
    report: dict[str, Any]


def quantize(request: Request, scratch: Path, progress: Progress, settings: Settings, limits: Limits) -> Result:
    """Quantizes a model.

    Args:
        scratch: an empty directory; the caller removes it.
        limits: of the child, besides those of builds.

    Raises:
        OctetError: the model or the inputs cannot be used; or `settings` allow less than this takes.
        BuildCanceled: `progress` said so.
    """
    own, made = scratch.absolute() / "own", scratch.absolute() / "made"
    own.mkdir()
    made.mkdir()
    if request.data is not None:
        (own / request.name).symlink_to(request.data)  # errors say this name, and not where an upload is stored
    with in_background(1) as start:
        session = _Session(request, own, made, progress, settings, start)
        readable = [path for path in (request.model, request.data, request.labels, made) if path is not None]
        run_child(
            "quantize",
            {
                "model": str(request.model),
                "data": request.name,
                "labels": None if request.labels is None else str(request.labels),
                "made": str(made),
                "options": request.options.to_json(),
                "shapes": {name: list(shape) for name, shape in request.shapes.items()},
            },
            access=Access(readable=tuple(readable), writable=(own,)),
            limits=limits,
            on_message=session.hear,
            poll=session.poll,
            allow_unsandboxed=settings.allow_unsandboxed,
        )
    return _result(own, scratch, settings)


def _result(own: Path, scratch: Path, settings: Settings) -> Result:
    """What the child left in `own`."""
    file, report = scratch / "quantized.onnx", scratch / "report.json"
    _copied(own / QUANTIZED_FILE, file, settings.max_upload_bytes)
    _copied(own / REPORT_FILE, report, _MOST_REPORT_BYTES)
    try:
        return Result(file, dict(json.loads(report.read_text())))
    except (ValueError, TypeError, RecursionError) as error:
        raise BuildFailed("the quantize process did not say what came of it") from error


class _Session:
    """What the parent does while the child runs: passes on its progress, and builds what it asks for."""

    def __init__(
        self,
        request: Request,
        own: Path,
        made: Path,
        progress: Progress,
        settings: Settings,
        start: Callable[[Callable[[Callable[[], None]], Built]], Future[Built]],
    ) -> None:
        self._request, self._own, self._made = request, own, made
        self._progress, self._settings, self._start = progress, settings, start
        self._stage, self._fraction = Stage.CALIBRATE if request.options.takes_inputs else Stage.IMPORT, 0.0
        self._built: Future[Built] | None = None
        self._count = 0

    def hear(self, message: Mapping[str, Any]) -> None:
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
        """Raises what a build raised, which ends the child."""
        self._progress.stage(self._stage, self._fraction)
        if self._built is not None and self._built.done():
            answer = self._made / f"{self._count}.json"
            unfinished = answer.with_suffix(".new")
            unfinished.write_text(json.dumps(self._built.result().to_json()))
            unfinished.rename(answer)
            self._built = None

    def _make(self, name: str) -> None:
        self._count += 1
        if self._built is not None or self._count > _MOST_BUILDS:
            raise BuildFailed("the quantize process asked for too many builds")
        source, directory = self._made / f"{self._count}.onnx", self._made / str(self._count)
        _copied(self._own / Path(name).name, source, self._settings.max_upload_bytes)
        directory.mkdir()
        self._built = self._start(partial(self._build, source, directory))

    def _discard(self, number: int) -> None:
        if 1 <= number <= self._count:
            shutil.rmtree(self._made / str(number), ignore_errors=True)
            (self._made / f"{number}.onnx").unlink(missing_ok=True)

    def _build(self, source: Path, directory: Path, poll: Callable[[], None]) -> Built:
        return build(source, directory, _Silent(poll), self._settings, self._request.shapes)


class _Silent:
    """Of a build whose stages are none of the quantization's."""

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll = poll

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        self._poll()

    def log(self, line: str) -> None:
        pass


def _copied(source: Path, target: Path, most_bytes: int) -> None:
    """A file that a child wrote, where it can no longer be changed.

    Raises:
        BuildFailed: there is no such file, it is no plain file, or it is too large.
    """
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BuildFailed(f"the quantize process did not write {source.name}") from error
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise BuildFailed(f"the quantize process wrote {status.st_size} bytes, or no plain file, as {source.name}")
        with os.fdopen(descriptor, "rb", closefd=False) as file, target.open("xb") as copy:
            shutil.copyfileobj(file, copy)
