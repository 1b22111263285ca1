"""Loads verified artifacts from the store. The one module of this room that needs TVM's runtime."""

from __future__ import annotations

import json
from dataclasses import dataclass

from service import runtime
from service.cache import OciLayout
from service.core.artifact import ArtifactConfig, Report
from service.core.digest import Digest
from service.core.errors import NotFound, NotReady
from service.workers.inference.memory import Weight
from service.workers.inference.runner import Runner


@dataclass(frozen=True)
class StoredArtifacts:
    """The artifacts of an OCI layout."""

    layout: OciLayout

    def load(self, artifact: Digest, threads: int = 0) -> Runner:
        """An instance of `artifact`, if a worker of its target has verified it.

        Args:
            threads: that share a call; 0 for all the cores that this process may use.

        Raises:
            CorruptBlob, NotFound: some of its bytes are damaged or gone. Its numerics report is one of its parts: every
                build attaches one.
            NotReady: the report says that it was not verified.
            OctetError: it cannot run here.
        """
        attached = self.layout.attached(artifact, Report.NUMERICS)
        if attached is None:
            raise NotFound(f"artifact {artifact} has no numerics report")
        report = json.loads(attached)
        if report.get("verified") is not True:
            reason = report.get("reason", "its outputs were not those of its reference")
            raise NotReady(
                f"artifact {artifact} was not verified: {reason}", hint="octet verify, on its target, does it"
            )
        return runtime.load(self.layout, artifact, threads=threads)

    def weigh(self, artifact: Digest) -> Weight:
        """What an instance maps, and computes in.

        Raises:
            CorruptBlob, NotFound: its manifest or its config is damaged or gone.
        """
        manifest = self.layout.manifest(artifact)
        config = ArtifactConfig.from_json(json.loads(self.layout.blobs.read(manifest.config.digest)))
        return Weight({layer.digest: layer.size_bytes for layer in manifest.layers}, config.arena_bytes)
