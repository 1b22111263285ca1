"""Loads verified artifacts from the store. The one module of this room that needs the runtime."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from service import native, runtime
from service.cache import OciLayout
from service.cache.metadata import metadata_of
from service.core.artifact import ArtifactConfig, Report
from service.core.digest import Digest
from service.core.errors import NotFound, NotReady
from service.core.metadata import ModelMetadata
from service.core.running import Running
from service.core.sequence import SequenceState
from service.core.signature import ModelSignature
from service.workers.crashes import Crashes
from service.workers.inference.memory import Weight
from service.workers.inference.runner import Array, Runner

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredArtifacts:
    """The artifacts of an OCI layout.

    Attributes:
        layout: the store.
        running: where it is noted what computes; None where nobody reads it.
        crashes: what earlier crashes were put down to.
    """

    layout: OciLayout
    running: Running | None = None
    crashes: Crashes | None = None

    def load(self, artifact: Digest, threads: int = 0) -> Runner:
        """An instance of `artifact`, if a worker of its target has verified it.

        Args:
            threads: that share a call; 0 for all the cores that this process may use.

        Raises:
            CorruptBlob, NotFound: some of its bytes are damaged or gone. Its numerics report is one of its parts: every
                build attaches one.
            NotReady: the report says that it was not verified.
            Quarantined: the server crashed too often while it ran.
            OctetError: it cannot run here.
        """
        is_suspect = self.crashes is not None and self.crashes.check(artifact)
        attached = self.layout.attached(artifact, Report.NUMERICS)
        if attached is None:
            raise NotFound(f"artifact {artifact} has no numerics report")
        report = json.loads(attached)
        if report.get("verified") is not True:
            reason = report.get("reason", "its outputs were not those of its reference")
            raise NotReady(
                f"artifact {artifact} was not verified: {reason}", hint="octet verify, on its target, does it"
            )
        runner = runtime.load(self.layout, artifact, threads=threads, running=self.running)
        return Alone(runner) if is_suspect else runner

    def forgive(self, artifact: Digest) -> None:
        """Lets an artifact run that is in quarantine."""
        if self.crashes is not None and self.crashes.forgive(artifact):
            _logger.warning("artifact %s may run again", artifact)

    def file_metadata(self, artifact: Digest) -> ModelMetadata:
        """As `service.cache.metadata_of`, with its errors."""
        return metadata_of(self.layout, artifact)

    def weigh(self, artifact: Digest) -> Weight:
        """What an instance maps, and computes in.

        Raises:
            CorruptBlob, NotFound: its manifest or its config is damaged or gone.
        """
        manifest = self.layout.manifest(artifact)
        config = ArtifactConfig.from_json(json.loads(self.layout.blobs.read(manifest.config.digest)))
        return Weight({layer.digest: layer.size_bytes for layer in manifest.layers}, config.plan.arena_bytes)


class Alone:
    """A `Runner` beside which no other of its kind runs, so that a crash tells which of them it was."""

    _lock = threading.Lock()

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def signature(self) -> ModelSignature:
        return self._runner.signature

    @property
    def runner(self) -> native.Runner:
        return native.serialized(self._runner.runner, Alone._lock)

    def run(self, inputs: Sequence[Array], state: SequenceState | None = None) -> Sequence[Array]:
        """As `Runner.run`."""
        with Alone._lock:
            return self._runner.run(inputs, state)

    def clone(self) -> Alone:
        return Alone(self._runner.clone())
