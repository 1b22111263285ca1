"""Artifacts of the store: checks that they may be loaded, and builds the orders that make the data plane load them."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.cache import OciLayout
from service.cache.metadata import metadata_of
from service.core.artifacts.artifact import TARGET_ANNOTATION, ArtifactConfig, Report
from service.core.cluster.queueing import Scheduling
from service.core.digest import Digest
from service.core.errors import NotFound, NotReady
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.target import parse_target
from service.core.verification.agreement import different_from, may_serve
from service.core.verification.jobs import VerificationState
from service.db import VerificationStore
from service.runtime.stored import StoredArtifact
from service.runtime.trust import ANYBODY, Trust
from service.workers.crashes import Crashes
from service.workers.data_plane import loads
from service.workers.inference.explain import why_unverified
from service.workers.inference.identity import Identity
from service.workers.inference.memory import Weight

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredArtifacts:
    """The artifacts of an OCI layout.

    Attributes:
        layout: the store.
        crashes: the crash records of artifacts; None if crashes are not recorded.
        trust: the public keys of those whose artifacts may be loaded.
        verifications: the verifications of artifacts that could not be run where they were built. None if verifications
            are not used.
        pool: the pool that this server belongs to.
    """

    layout: OciLayout
    crashes: Crashes | None = None
    trust: Trust = ANYBODY
    verifications: VerificationStore | None = None
    pool: str = ""

    def check(self, artifact: Digest) -> None:
        """Checks that an artifact may be loaded.

        Raises:
            CorruptBlob, NotFound: a part of the artifact is damaged or missing. One part is the numerics report, which
                every build attaches.
            Different: the artifact differs from its reference runtime, and no user has accepted the difference.
            NotReady: the artifact has not been verified, neither by its build nor by a worker of this pool. A
                verification is queued if none exists.
            Untrusted: none of the trusted keys signed the artifact.
            Quarantined: the server crashed too often while the artifact ran.
            OctetError: the artifact cannot run here.
        """
        self._is_suspect(artifact)
        attached = self.layout.attached(artifact, Report.NUMERICS)
        if attached is None:
            raise NotFound(f"artifact {artifact} has no numerics report")
        report = json.loads(attached)
        self._require_verified(artifact, report)
        StoredArtifact.read(self.layout, artifact, self.trust).check()

    def check_crashes(self, artifact: Digest) -> None:
        """Raises `Quarantined` if the server crashed too often while the artifact ran."""
        self._is_suspect(artifact)

    def _require_verified(self, artifact: Digest, report: Mapping[str, Any]) -> None:
        if (different := different_from(report)) is not None:
            raise different
        is_verified, what = may_serve(report), f"artifact {artifact}"
        if self.verifications is None:
            if not is_verified:
                reason = report.get("reason", "its outputs differ from those of its reference")
                raise NotReady(f"{what} was not verified: {reason}")
            return
        found = self.verifications.of_pools(artifact)
        in_pool = found.get(self.pool)
        if in_pool is not None and in_pool.state is VerificationState.FAILED:
            raise why_unverified(what, in_pool)
        if not is_verified:
            target = self.layout.manifest(artifact).annotations[TARGET_ANNOTATION]
            verification = found.get("") or self.verifications.submit(artifact, target)
            if verification.state is not VerificationState.PASSED:
                raise why_unverified(what, verification)

    def order(self, identity: Identity, scheduling: Scheduling) -> tuple[dict[str, Any], ModelSignature]:
        """Returns the order to load a model whose artifacts were checked, and the model's signature."""
        sizes = [(1, identity.artifact), *((1, artifact) for artifact in identity.buckets), *identity.variants]
        return loads.load(
            identity.model,
            str(identity.version),
            [(batch, StoredArtifact.read(self.layout, artifact, self.trust)) for batch, artifact in sizes],
            scheduling,
            is_suspect=any(self._is_suspect(artifact) for _, artifact in sizes),
        )

    def forgive(self, artifact: Digest) -> None:
        """Releases an artifact from quarantine, and queues its verification again if it failed."""
        if self.verifications is not None:
            self.verifications.again(artifact)
        if self.crashes is not None and self.crashes.forgive(artifact):
            _logger.warning("artifact %s may run again", artifact)

    def file_metadata(self, artifact: Digest) -> ModelMetadata:
        """Returns the metadata in the artifact's model file. Raises the same errors as
        `service.cache.metadata.metadata_of`.
        """
        return metadata_of(self.layout, artifact)

    def tokenizer(self, digest: Digest) -> Path:
        """Returns the file of a tokenizer. Raises `CorruptBlob`, `NotFound`."""
        return self.layout.blobs.path(digest)

    def weigh(self, artifact: Digest) -> Weight:
        """Returns the memory that an instance needs: the mapped files and the arena. For a GPU, this is the GPU memory
        for the code, the constants and all tensors.

        Raises:
            CorruptBlob, NotFound: the artifact's manifest or config is damaged or gone.
        """
        manifest = self.layout.manifest(artifact)
        config = ArtifactConfig.from_json(json.loads(self.layout.blobs.read(manifest.config.digest)))
        mapped = {layer.digest: layer.size_bytes for layer in manifest.layers}
        if parse_target(config.target).device == "cpu":
            return Weight(mapped, config.plan.arena_bytes)
        signature = config.signature
        tensors_bytes = sum(_bytes(spec) for spec in (*signature.inputs, *signature.outputs))
        # each state has two copies: before and after a call
        states_bytes = 2 * sum(_bytes(state.spec) for state in signature.states)
        return Weight(mapped, config.plan.arena_bytes + tensors_bytes + states_bytes, "cuda")

    def hold(self, files: Collection[Digest]) -> None:
        """Keeps these files, which the data plane maps, in this machine's cache of the store. Other files may be
        evicted.
        """
        self.layout.blobs.pin(files)

    def _is_suspect(self, artifact: Digest) -> bool:
        return self.crashes is not None and self.crashes.check(artifact)


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize
