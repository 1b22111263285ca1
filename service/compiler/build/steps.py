"""The steps of a build. Each runs in a sandboxed child that can access only the files of that step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from service.compiler.build.elsewhere import run_elsewhere
from service.compiler.build.expected import Answers
from service.compiler.build.results import Results
from service.compiler.lowering import toolchain
from service.compiler.lowering.link import link
from service.compiler.messages.building import (
    BUILD,
    IMPORT,
    BuildRequest,
    BuildResult,
    ImportRequest,
    ImportResult,
)
from service.compiler.messages.checking import PROFILE, VERIFY, ProfileRequest, Shorter, VerifyRequest
from service.compiler.messages.files import CONSTANTS_FILE, MODULE_FILE, PLAIN_FILE
from service.compiler.messages.role import Request, Result, Role
from service.compiler.references.environment import Environment
from service.compiler.sandbox import Access, Limits, run_child, with_gpus, working
from service.core.artifacts.artifact import ArtifactConfig
from service.core.artifacts.explanation import build_explanation, is_described
from service.core.artifacts.floating import is_float
from service.core.builds.build import BuildInputs, Progress, Stage
from service.core.builds.fixed import fixed_of
from service.core.builds.options import accepts_differences, batch_of, counts_values, shapes_of
from service.core.digest import Digest
from service.core.errors import BuildFailed, BuildTimedOut, VerificationFailed
from service.core.settings import Settings
from service.core.system.cores import Core, build_cores
from service.core.target import Target, detect_host
from service.core.verification import witnesses
from service.core.verification.agreement import Deviation
from service.core.verification.witnesses import Statement, float_share

_POLL_S = 0.1
_LOG_EVERY_S = 10.0
_PROFILE_S = 0.2  # the approximate duration of a profile; a slow model is measured at least five times nevertheless
LIBRARY_FILE = "library.so"

_RUNNING_ROLES = frozenset({"verify", "profile", "race"})  # the roles that run the code of the artifact
T = TypeVar("T")


@dataclass(frozen=True)
class CompileRequest:
    """A request for one build. `source` is a local file whose digest is `source_digest`."""

    source: Path
    source_digest: Digest
    target: Target
    numerics: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Steps:
    """The steps of one build. The duration of each is measured, and each has its own directory under `scratch`."""

    def __init__(
        self, request: CompileRequest, scratch: Path, progress: Progress, settings: Settings, *, nice: int = 0
    ) -> None:
        self._nice = max(nice, settings.build_nice)
        self.processors = tuple(sorted(Core().union(*build_cores(settings.build_cores))))
        self.request, self.scratch, self.progress, self.settings = request, scratch, progress, settings
        self.times_s: dict[str, float] = {}
        self._stage, self._fraction = Stage.IMPORT, 0.0
        self._results = Results(settings.results_dir.absolute(), settings.results_max_bytes)
        self._cpu_s, self._counting = 0.0, threading.Lock()  # the processor time that all children have used so far

    def inputs(self) -> BuildInputs:
        request = self.request
        return toolchain.build_inputs(request.source_digest, request.target, request.numerics, request.options)

    def output(self, step: str, name: str) -> Path:
        """Returns the path of a file that `step` wrote.

        A child may choose the name, so a name that leads out of the step's directory is refused.

        Raises:
            BuildFailed: the file does not exist.
        """
        path = self.scratch / step / name
        if Path(name).name != name or path.is_symlink() or not path.is_file():
            raise BuildFailed(f"the {step} process did not write {Path(name).name!r}", stage=self._stage)
        return path

    def run(
        self,
        role: Role[Request, Result],
        request: Request,
        readable: list[Path],
        *,
        within: str = "",
        poll: Callable[[], None] | None = None,
        environment: Environment | None = None,
    ) -> Result:
        """Runs one child and returns its result. The child has its own directory, which is named `within` or else after
        the role.

        A child with a `poll` runs in the background and does not report stages. A child with an `environment` has the
        packages of another Python environment.

        Raises:
            BuildFailed: the result is malformed; and the errors of `sandbox.run_child`.
        """
        directory = self.scratch / (within or role.name)
        directory.mkdir(exist_ok=True)
        started_s = time.monotonic()
        start = run_child if environment is None else partial(run_elsewhere, environment)
        members = start(
            role.name,
            request.to_json(),
            access=Access(readable=tuple(readable), writable=(directory,)),
            limits=with_gpus(self._limits()) if self._runs_on_gpu(role.name) else self._limits(),
            on_message=self._relay if poll is None else None,
            poll=poll or self._poll,
            allow_unsandboxed=self.settings.allow_unsandboxed,
            on_cpu=self._count,
        )
        if not within:
            self.times_s[role.name] = round(time.monotonic() - started_s, 4)
        return role.read_result(members, self._stage)

    def ask(
        self,
        role: Role[Request, Result],
        request: Request,
        readable: list[Path],
        question: Mapping[str, Any],
        files: Sequence[str],
        *,
        poll: Callable[[], None] | None = None,
        environment: Environment | None = None,
    ) -> Result:
        """Returns the cached result of an equal request. If there is none, runs a child like `run` and caches its
        result.

        Args:
            question: everything that determines the result, except for the source and Octet's own code.
            files: the names of the files that the child writes into its directory.

        Raises:
            BuildFailed: the child read a source with a different digest.
        """
        code = {**toolchain.fingerprint(), "octet_core": toolchain.core_digest()}
        whole = {"role": role.name, "source": self.request.source_digest, "code": code, **question}
        directory = self.scratch / role.name
        directory.mkdir()
        cached = self._results.take(whole, directory)
        if cached is not None:
            self.progress.log(f"{role.name}: result found in the cache")
            return role.read_result(cached, self._stage)
        result = self.run(role, request, readable, poll=poll, environment=environment)
        if getattr(result, "source", self.request.source_digest) != self.request.source_digest:
            name = self.request.source.name
            raise BuildFailed(f"{name} changed while it was read", stage=self._stage, hint="compile the file again")
        self._results.keep(whole, result.to_json(), [self.output(role.name, name) for name in files])
        return result

    def imported(self) -> ImportResult:
        """Imports the source. The child writes `module.json`."""
        self.enter(Stage.IMPORT)
        source, shapes = self.request.source, shapes_of(self.request.options)
        counts, fixed = counts_values(self.request.options), fixed_of(self.request.options)
        question = {"shapes": shapes, **({"counts": True} if counts else {}), **({"fixed": fixed} if fixed else {})}
        request = ImportRequest(source, shapes, counts, fixed)
        return self.ask(IMPORT, request, [source], question=question, files=[MODULE_FILE])

    def imported_at(self, shapes: Mapping[str, Sequence[int]], within: str) -> ImportResult:
        """Imports the source with different input `shapes`, like `imported`. `module.json` is in the directory
        `within`.
        """
        source, fixed = self.request.source, fixed_of(self.request.options)
        return self.run(IMPORT, ImportRequest(source, shapes, fixed=fixed), [source], within=within, poll=self._poll)

    def build(
        self,
        states: int,
        tiles: Mapping[str, Sequence[int]] | None = None,
        rank: int = 0,
        *,
        module: Path | None = None,
        longest: int = 0,
        varying: Sequence[Sequence[int]] = (),
    ) -> BuildResult:
        """Builds the imported module: writes an object, the constants and the kernels' programs, and returns the call
        plan.

        Args:
            states: the number of tensors that the model keeps between calls.
            tiles, rank: as in `kernels.choices`.
            module: the module to build instead of the imported one.
            longest: the greatest length of the inputs, if the last input of `module` is the length; else 0.
            varying: for each other input, the axes that have this length.
        """
        module = module or self.output("import", MODULE_FILE)
        request = BuildRequest(
            module,
            self.request.target.name,
            self.request.numerics,
            batch_of(self.request.options),
            tiles or {},
            rank,
            states,
            longest,
            varying,
        )
        return self.run(BUILD, request, readable=[module])

    def link(self, kernels: list[Path]) -> Path:
        """Links the build child's object and the objects `kernels` into one library that contains nothing else."""
        self.enter(Stage.LINK)
        objects = [self.output("build", PLAIN_FILE), *kernels]
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
        self,
        config: ArtifactConfig,
        library: Path,
        built: BuildResult,
        answers: Answers,
        shorter: Sequence[Shorter] = (),
    ) -> dict[str, Any]:
        """Runs the artifact, and compares its outputs with those of each witness.

        Args:
            shorter: the expected outputs for shorter inputs.

        Returns:
            The numerics report; see docs/how-to/reports.md.

        Raises:
            VerificationFailed: the outputs differ from the oracle's.
        """
        self.enter(Stage.VERIFY)
        about = {
            "mode": config.numerics,
            "formulas": built.formulas,
            "seed": 0,
            "float": float_share(built.coverage),
        }
        missing = self.request.target.missing_on(detect_host())
        if missing:
            reason = f"this host lacks {', '.join(sorted(missing))}"
            self.progress.log(f"not verified: {reason}; run `octet verify` on the target")
            return {**about, **witnesses.not_checked(reason)}
        compared = self._compared(config, library, answers, built.deviations, shorter)
        split = len(answers.witnesses)
        accepts = accepts_differences(self.request.options)
        report = witnesses.report(
            compared[:split],
            compared[split:],
            answers.kinds,
            answers.no_witness,
            accepts=accepts,
            is_real=is_float(built.coverage),
        )
        if not report["exact"]:
            raise VerificationFailed(
                f"the compiled model does not compute what {config.numerics} defines: {compared[0].text}",
                stage=Stage.VERIFY,
                hint="this is a bug in the compiler; please report it, with the model",
            )
        return {**about, **report, **({"reached": dict(answers.reached)} if answers.reached else {})}

    def _compared(
        self,
        config: ArtifactConfig,
        library: Path,
        answers: Answers,
        deviations: Sequence[Deviation],
        shorter: Sequence[Shorter],
    ) -> list[Statement]:
        constants = self.output("build", CONSTANTS_FILE)
        expected = [*answers.witnesses, *answers.sessions]
        files = [each.file for each in expected if each.file is not None]
        probes = [each.probes for each in expected if each.probes is not None] if answers.has_probes else []
        request = VerifyRequest(config, library, constants, tuple(files), tuple(probes), tuple(shorter))
        more = [each.outputs for each in shorter]
        result = self.run(VERIFY, request, readable=[library, constants, *files, *probes, *more])
        if result.different:
            raise VerificationFailed(
                f"the compiled model computes other values for inputs of length {result.different[0]} than a model of "
                "this length",
                stage=Stage.VERIFY,
                hint="this is a bug in the compiler; please report it, with the model",
            )
        found = result.comparisons
        numbers = {number for each in found for number in each.inputs}
        if len(found) < len(files) or not numbers <= set(range(len(answers.kinds))):
            raise BuildFailed("the verify process returned a malformed result", stage=Stage.VERIFY)
        comparisons = iter(found)
        return [
            Statement(
                each.witness,
                next(comparisons) if each.file else None,
                each.reason,
                each.refused,
                () if each.witness.is_own or each in answers.sessions else deviations,
            )
            for each in expected
        ]

    def profile(self, config: ArtifactConfig, library: Path, built: BuildResult) -> dict[str, Any] | None:
        """Measures the time of each call of a verified artifact on this machine. The measurement takes a bounded time.

        Logs a warning if operators without a hand-written kernel take a large fraction of that time.

        Returns:
            A `runtime.profile.Profile` as JSON. None if the target's code does not run on this machine, or if the
            measurement failed. A failure is logged, and does not affect the artifact.
        """
        if self.request.target.missing_on(detect_host()):
            return None
        constants = self.output("build", CONSTANTS_FILE)
        try:
            peak = built.coverage.get("kernels", {}).get("peak")
            request = ProfileRequest(config, library, constants, peak, _PROFILE_S)
            profile = self.run(PROFILE, request, readable=[library, constants]).to_json()
            warning = build_explanation(built.coverage, profile).warning if is_described(built.coverage) else ""
        except BuildFailed as error:
            self.progress.log(f"not profiled: {error.message}")
            return None
        except (LookupError, TypeError, ValueError, AttributeError):
            self.progress.log("not profiled: the profile process returned a malformed result")
            return None
        if warning:
            self.progress.log(warning)
        return profile

    def awaited(self, answer: Future[T]) -> T:
        """Waits for a background result, and meanwhile reports that the build is still running."""
        while not answer.done():
            self._poll()
            wait([answer], timeout=_POLL_S)
        return answer.result()

    def _limits(self) -> Limits:
        limit_s = self.settings.build_time_limit_s
        left_s = limit_s - self._cpu_s
        if left_s <= 0:
            raise BuildTimedOut(
                f"the build used up its {limit_s:g} s of processor time", hint="raise OCTET_BUILD_TIME_LIMIT_S"
            )
        limits = working(left_s, self.settings.build_stall_limit_s, self.settings.build_memory_limit_bytes)
        return replace(limits, nice=self._nice, processors=self.processors)

    def _count(self, cpu_s: float) -> None:
        with self._counting:
            self._cpu_s += cpu_s

    def _runs_on_gpu(self, role: str) -> bool:
        return role in _RUNNING_ROLES and self.request.target.device == "cuda"

    def enter(self, stage: Stage, fraction: float = 0.0) -> None:
        """Reports that the build is in `stage`, and which fraction of it is done."""
        self._stage, self._fraction = stage, fraction
        self.progress.stage(stage, fraction)

    def _relay(self, message: Mapping[str, Any]) -> None:
        if "stage" in message:
            self.enter(Stage(message["stage"]), float(message.get("fraction", 0.0)))
        elif "log" in message:
            self.progress.log(str(message["log"]))

    def _poll(self) -> None:
        self.progress.stage(self._stage, self._fraction)
