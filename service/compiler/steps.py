"""The steps of a build, each a sandboxed child with the files of that step only."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler import toolchain
from service.compiler.checking_roles import REFERENCE_FILE
from service.compiler.link import link
from service.compiler.references import Reference, reference_for
from service.compiler.sandbox import Access, Limits, run_child
from service.core.artifact import ArtifactConfig
from service.core.build import BuildCanceled, Progress, Stage
from service.core.digest import Digest
from service.core.errors import BuildFailed, VerificationFailed
from service.core.settings import Settings
from service.core.signature import ModelSignature
from service.core.target import Target, detect_host

SAMPLES = 8
_POLL_S = 0.1

Witness = tuple[str, Path]  # who says so, and the file of its answers
MODULE_FILE, CONSTANTS_FILE, EXPECTED_FILE, LIBRARY_FILE = "module.json", "constants.bin", "expected.npz", "library.so"


@dataclass(frozen=True)
class CompileRequest:
    """One build. `source` is a local file that hashes to `source_digest`."""

    source: Path
    source_digest: Digest
    target: Target
    numerics: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Steps:
    """The steps of one build: each has a directory of its own under `scratch`, and is timed."""

    def __init__(self, request: CompileRequest, scratch: Path, progress: Progress, settings: Settings) -> None:
        self.request, self.scratch, self.progress, self.settings = request, scratch, progress, settings
        self.times_s: dict[str, float] = {}
        self._stage, self._fraction = Stage.IMPORT, 0.0
        self._deadline_s = time.monotonic() + settings.build_time_limit_s

    def inputs(self) -> dict[str, Any]:
        request = self.request
        return toolchain.build_inputs(
            request.source_digest, request.target, request.numerics, request.options
        ).to_json()

    def output(self, step: str, name: str) -> Path:
        """A file that `step` wrote. Its name came from the child: it may not lead elsewhere.

        Raises:
            BuildFailed: there is no such file.
        """
        path = self.scratch / step / name
        if Path(name).name != name or path.is_symlink() or not path.is_file():
            raise BuildFailed(f"the {step} process did not write {Path(name).name!r}", stage=self._stage)
        return path

    def run(
        self,
        role: str,
        request: Mapping[str, Any],
        readable: list[Path],
        writable: Sequence[Path] = (),
        *,
        poll: Callable[[], None] | None = None,
    ) -> Any:
        """Runs one child in a new directory of its own. With a `poll` of its own it runs in the background, and has no
        stage."""
        directory = self.scratch / role
        directory.mkdir()
        started_s = time.monotonic()
        result = run_child(
            role,
            request,
            access=Access(readable=tuple(readable), writable=(directory, *writable)),
            limits=self._limits(),
            on_message=self._relay if poll is None else lambda message: None,
            poll=poll or self._poll,
            allow_unsandboxed=self.settings.allow_unsandboxed,
        )
        self.times_s[role] = round(time.monotonic() - started_s, 4)
        return result

    def build(self, signature: ModelSignature) -> Any:
        """The imported module -> objects, constants and the oracle's answers."""
        kernels = self.settings.kernels_dir.absolute()
        kernels.mkdir(parents=True, exist_ok=True)
        module = self.output("import", MODULE_FILE)
        request = {
            "module": str(module),
            "kernels": str(kernels),
            "target": self.request.target.name,
            "numerics": self.request.numerics,
            "signature": signature.to_json(),
            "samples": SAMPLES,
        }
        return self.run("build", request, readable=[module], writable=[kernels])

    def link(self, objects: list[Path]) -> Path:
        self._enter(Stage.LINK)
        directory = self.scratch / "link"
        directory.mkdir()
        started_s = time.monotonic()
        library = directory / LIBRARY_FILE
        link(
            objects,
            library,
            self.request.target,
            poll=self._poll,
            allow_unsandboxed=self.settings.allow_unsandboxed,
        )
        self.times_s["link"] = round(time.monotonic() - started_s, 4)
        return library

    def verify(
        self, config: ArtifactConfig, library: Path, built: Mapping[str, Any], witnesses: list[Witness]
    ) -> dict[str, Any]:
        """Holds the artifact to the oracle and to `witnesses`.

        Raises:
            VerificationFailed: it does not give the oracle's answers.
        """
        self._enter(Stage.VERIFY)
        report: dict[str, Any] = {
            "mode": config.numerics,
            "reference": built["reference"],
            "formulas": built["formulas"],
            "seed": 0,
        }
        missing = self.request.target.missing_on(detect_host())
        if missing:
            reason = f"this host lacks {', '.join(sorted(missing))}"
            self.progress.log(f"not verified: {reason}; run `octet verify` on the target")
            return {**report, "verified": False, "reason": reason, "checks": []}
        vectors = [("the oracle: NumPy, int64", self.output("build", EXPECTED_FILE)), *witnesses]
        constants = self.output("build", CONSTANTS_FILE)
        paths = [path for _, path in vectors]
        outcome = self.run(
            "verify",
            {
                "config": config.to_json(),
                "library": str(library),
                "constants": str(constants),
                "vectors": [[name, str(path)] for name, path in vectors],
            },
            readable=[library, constants, *paths],
        )
        if outcome["verified"] is not True:
            raise VerificationFailed(
                f"the compiled model does not compute what {config.numerics} defines: {json.dumps(outcome['checks'])}",
                stage=Stage.VERIFY,
                hint="this is a defect of the compiler; please report the model",
            )
        return {**report, **outcome}

    @contextmanager
    def reference(self, signature: ModelSignature, source_format: str) -> Iterator[Callable[[], list[Witness]]]:
        """Runs the source model in its own runtime in the background, where that is installed.

        Gives what waits for it, and returns the files of its answers. The child ends with the block.
        """
        abandoned = threading.Event()
        reference = reference_for(source_format, self.request.numerics)

        def poll() -> None:
            if abandoned.is_set():
                raise BuildCanceled

        def answer() -> list[Witness]:
            if reference is None or reference.version is None or self.request.target.missing_on(detect_host()):
                return []
            return [self._ask(reference, signature, source_format, poll)]

        with ThreadPoolExecutor(1) as pool:
            answers = pool.submit(answer)
            try:
                yield lambda: self._awaited(reference, answers)
            finally:
                abandoned.set()

    def _awaited(self, reference: Reference | None, answers: Future[list[Witness]]) -> list[Witness]:
        """The result, with the build kept alive while it is waited for."""
        while not answers.done():
            self._poll()
            wait([answers], timeout=_POLL_S)
        if reference is None:
            self.progress.log(f"no runtime defines {self.request.numerics} here: verified against the oracle only")
            return []
        if reference.version is None:
            self.progress.log(f"{reference.title} is not installed here: verified against the oracle only")
        try:
            return answers.result()
        except BuildFailed as error:
            self.progress.log(f"{reference.title} could not run the model, so it is no witness: {error.message}")
            return []

    def _ask(
        self, reference: Reference, signature: ModelSignature, source_format: str, poll: Callable[[], None]
    ) -> Witness:
        numerics = self.request.numerics
        request = {
            "source": str(self.request.source),
            "format": source_format,
            "numerics": numerics,
            "signature": signature.to_json(),
            "samples": SAMPLES,
        }
        self.run("reference", request, readable=[self.request.source], poll=poll)
        name = f"{reference.title} {reference.version}, {reference.kernels[numerics]}"
        return name, self.output("reference", REFERENCE_FILE)

    def _limits(self) -> Limits:
        left_s = max(1.0, self._deadline_s - time.monotonic())
        memory = self.settings.build_memory_limit_bytes
        return Limits(wall_s=left_s, cpu_s=2 * left_s, memory_bytes=memory, file_bytes=memory)

    def _enter(self, stage: Stage, fraction: float = 0.0) -> None:
        self._stage, self._fraction = stage, fraction
        self.progress.stage(stage, fraction)

    def _relay(self, message: Mapping[str, Any]) -> None:
        if "stage" in message:
            self._enter(Stage(message["stage"]), float(message.get("fraction", 0.0)))
        elif "log" in message:
            self.progress.log(str(message["log"]))

    def _poll(self) -> None:
        self.progress.stage(self._stage, self._fraction)
