"""Runs artifacts in a sandboxed child, in which their code cannot reach files, programs or the network.

This process reads the folder and checks the digests of its blobs and the library. The child (`running_roles`) can
access only those files, and tensors in shared memory. The artifact's code may control everything that the child
reports, so the reports are not trusted.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from service.cache import OciLayout
from service.compiler.children.forked import keeping
from service.compiler.messages.checking import VERIFY, ProfileResult, VerifyRequest
from service.compiler.messages.role import Request, Result, Role
from service.compiler.messages.running import (
    BENCH,
    COUNT,
    EXPLAIN,
    RUN,
    BenchRequest,
    BenchResult,
    CountRequest,
    ExplainRequest,
    RunRequest,
)
from service.compiler.sandbox import Access, Limits, run_child, with_gpus
from service.compiler.sandbox.policy import unlimited
from service.core.artifacts.artifact import ArtifactConfig, only_artifact
from service.core.artifacts.explanation import Call
from service.core.digest import Digest
from service.core.errors import BuildFailed, SandboxUnavailable
from service.core.models.arrays import Array
from service.core.models.buckets import fit_inputs, merge_buckets
from service.core.models.ranges import Counts, check_counts
from service.core.models.signature import ModelSignature
from service.core.settings import Settings
from service.core.target import Target, machine_name, parse_target
from service.core.verification.agreement import Comparison
from service.runtime.model import checked
from service.runtime.shared import SharedTensors, bytes_of
from service.runtime.stored import StoredArtifact, artifacts_of_model
from service.runtime.trust import Trust

Poll = Callable[[], None]


_ELSEWHERE = "use Linux 5.13 or newer with landlock in /sys/kernel/security/lsm"


def _do_nothing() -> None:
    """The default `poll`, which does nothing."""


@dataclass(frozen=True)
class LockedArtifact:
    """One artifact in a folder. Each method loads the artifact in a new child process.

    All methods raise:
        BuildCrashed: the artifact's code crashed.
        BuildFailed: the child returned a malformed result.
        SandboxUnavailable: the kernel cannot sandbox the child, and `allow_unsandboxed` is false.
        OctetError: the library cannot be loaded.

    Attributes:
        allow_unsandboxed: run without a complete sandbox if the kernel does not have all features for it.
        unsandboxed: do not sandbox the child at all.
        limits: the child's resource limits. If None, the child has no limits and is a fork of this process, which must
            have one thread and contain no secrets. None is meant for commands whose user waits and can interrupt them.
    """

    stored: StoredArtifact
    allow_unsandboxed: bool = False
    unsandboxed: bool = False
    limits: Limits | None = None

    @staticmethod
    def read(
        layout: OciLayout,
        digest: Digest | None,
        settings: Settings,
        *,
        unsandboxed: bool = False,
        limits: Limits | None = None,
    ) -> LockedArtifact:
        """Reads the artifact `digest` in `layout`, or the only artifact if `digest` is None.

        Raises:
            OctetError: any error that `runtime.load` raises before it loads code.
        """
        digest = digest or only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
        stored = StoredArtifact.read(layout, digest, Trust.of(settings))
        stored.check()
        return LockedArtifact(stored, settings.allow_unsandboxed, unsandboxed, limits)

    @property
    def digest(self) -> Digest:
        return self.stored.digest

    @property
    def signature(self) -> ModelSignature:
        return self.stored.config.signature

    @property
    def target(self) -> Target:
        return parse_target(self.stored.config.target)

    def run(self, inputs: Sequence[Array], threads: int, length: int = 0) -> tuple[list[Array], float]:
        """Returns the outputs for `inputs`, which must match the signature, and the duration of the call in seconds.

        Args:
            length: the length of the inputs before they were padded; 0 if they were not.
        """
        shared = SharedTensors.create(self.signature)
        try:
            for position, given in zip(shared.inputs, inputs, strict=True):
                position[...] = given
            request = RunRequest(*self._files, shared.descriptor, threads, length)
            result = self.ask(RUN, request, keep=[shared.descriptor], shared_bytes=bytes_of(self.signature))
        finally:
            os.close(shared.descriptor)
        return list(shared.outputs), result.seconds

    def compare(self, vectors: Path, probes: Path | None = None, poll: Poll = _do_nothing) -> Comparison:
        """Compares the outputs with the expected outputs in the file `vectors` (`runtime.compare`).

        Args:
            probes: the file with the inputs that the oracle chose and their expected outputs, if the artifact has one.
            poll: called about every 100 ms during the run. It may raise an exception to end the run. The methods below
                have the same parameter.
        """
        chosen = () if probes is None else (probes.absolute(),)
        request = VerifyRequest(*self._files, (vectors.absolute(),), chosen)
        comparisons = self.ask(VERIFY, request, readable=[vectors, *chosen], poll=poll).comparisons
        if not comparisons:
            raise BuildFailed("the verify process returned a malformed result: it compared nothing")
        return comparisons[0]

    def count(self, samples: Sequence[bytes], counted: int, poll: Poll = _do_nothing) -> list[Counts]:
        """Runs an artifact that counts values, on one thread. Returns the counts of all calls together.

        Args:
            samples: the elements of the inputs of each call, in the signature's order.
            counted: the number of the last outputs, which contain counts.
        """
        encoded = tuple(base64.b64encode(each).decode() for each in samples)
        result = self.ask(COUNT, CountRequest(*self._files, 1, encoded, counted), poll=poll)
        try:
            if len(result.counts) != counted:
                raise ValueError("counts are missing or too many")
            return [check_counts(each) for each in result.counts]
        except ValueError as error:
            raise BuildFailed(f"the count process returned a malformed result: {error}") from error

    def bench(self, threads: int, seconds: float, poll: Poll) -> BenchResult:
        """Measures `runtime.latency.Latency` with `threads` threads, each on its own core. The result names the
        cores.
        """
        return self.ask(BENCH, BenchRequest(*self._files, threads, seconds), poll=poll)

    def explain(
        self, threads: int, seconds: float, peak: Mapping[str, Any] | None, poll: Poll = _do_nothing
    ) -> ProfileResult:
        """Measures `runtime.profile.Profile` with `threads` threads, each on its own core."""
        result = self.ask(EXPLAIN, ExplainRequest(*self._files, threads, seconds, peak), poll=poll)
        symbols = [call.symbol for call in self.stored.config.plan.calls]
        if len(result.calls) != len(symbols):
            raise BuildFailed("the explain process returned a malformed result: calls are missing or too many")
        calls = tuple(Call(symbol, call.seconds) for symbol, call in zip(symbols, result.calls, strict=True))
        return replace(result, machine=machine_name(self.target), calls=calls)

    @property
    def _files(self) -> tuple[ArtifactConfig, Path, Path]:
        return self.stored.config, self.stored.library.absolute(), self.stored.constants.absolute()

    def ask(
        self,
        role: Role[Request, Result],
        request: Request,
        *,
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        keep: Collection[int] = (),
        shared_bytes: int = 0,
        poll: Poll = _do_nothing,
        on_message: Callable[[dict[str, Any]], None] | None = None,
    ) -> Result:
        """Runs a role that loads the artifact in a child, which can read the artifact's files.

        Args:
            readable, writable: further files that the child may read or write (`sandbox.Access`).
            keep: descriptors that the child inherits.
            shared_bytes: the size of the memory that the child shares with this process.
            on_message: called with the child's messages.
        """
        limits = self.limits or unlimited(shared_bytes)
        try:
            members = run_child(
                role.name,
                request.to_json(),
                access=Access((*self._files[1:], *readable), tuple(writable)),
                limits=limits if self.target.device == "cpu" else with_gpus(limits),
                on_message=on_message,
                poll=poll,
                allow_unsandboxed=self.allow_unsandboxed,
                unsandboxed=self.unsandboxed,
                fork=keeping(*keep) if self.limits is None else None,
            )
        except SandboxUnavailable as error:
            error.hint = f"{_ELSEWHERE}; or, if you trust the source of the artifact, run it with --unsandboxed"
            raise
        return role.read_result(members)


class LockedModel:
    """A model in a folder: its only artifact, or one artifact for each bucket.

    Attributes:
        signature: the signature that `runtime.load_model` would return.
    """

    def __init__(self, layout: OciLayout, digest: Digest | None, settings: Settings, *, unsandboxed: bool) -> None:
        """
        Args:
            digest: the digest of one artifact, or None for the whole model in `layout`.

        Raises:
            OctetError: any error that `runtime.load_model` raises before it loads code.
        """
        digests = [digest] if digest else artifacts_of_model(layout)
        parts = [LockedArtifact.read(layout, each, settings, unsandboxed=unsandboxed) for each in digests]
        self.signature: ModelSignature = parts[0].signature
        if len(parts) > 1 or self.signature.is_open:
            self.signature = merge_buckets([part.signature for part in parts])
            parts.sort(key=lambda part: self.signature.buckets.index(part.signature))
        self._parts = parts

    @property
    def digest(self) -> Digest:
        """The digest of the artifact of the smallest bucket, which identifies the model."""
        return self._parts[0].digest

    def run(self, inputs: Sequence[Array], threads: int) -> tuple[list[Array], float]:
        """Returns the outputs in the signature's order, and the duration of the call in seconds.

        Raises:
            InvalidTensor: an input does not match the signature, or no bucket accepts its size.
            OctetError: see `LockedArtifact`.
        """
        if not self.signature.buckets:
            return self._parts[0].run(checked(self.signature, inputs), threads)
        request = fit_inputs(self.signature, inputs)
        outputs, took_s = self._parts[request.bucket].run(request.inputs, threads, request.length or 0)
        return request.cut(self.signature, outputs), took_s
