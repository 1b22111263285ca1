"""Decides whether an artifact may be loaded, by who built it: the signed provenance that is stored beside the artifact.

Most programs require no signature, so the module that reads signatures is imported only when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.cache import OciLayout
from service.core.digest import Digest
from service.core.errors import Untrusted

if TYPE_CHECKING:
    from service.core.provenance import TrustedKey
    from service.core.settings import Settings
    from service.runtime.evidence import Evidence


@dataclass(frozen=True)
class Trust:
    """The keys of the builders whose artifacts may be loaded; without keys, all artifacts may be."""

    keys: tuple[TrustedKey, ...] = ()

    @staticmethod
    def of(settings: Settings) -> Trust:
        """Returns the trust that the settings configure. Raises the errors of `trusted_keys`."""
        from service.core.provenance import trusted_keys

        return Trust(trusted_keys(settings))

    def check(self, layout: OciLayout, artifact: Digest) -> None:
        """Raises `Untrusted` unless a trusted key signed the provenance of `artifact`, or no signature is required."""
        if self.keys:
            self.require(self.evidence(layout, artifact), artifact)

    def evidence(self, layout: OciLayout, artifact: Digest) -> Evidence:
        """Returns the evidence of who built an artifact. Raises `NotFound` or `CorruptBlob` if the artifact's manifest
        is gone or damaged.
        """
        from service.runtime.evidence import documents_about

        return self.judge(documents_about(layout, artifact), artifact, layout.manifest(artifact).annotations)

    def judge(self, documents: Iterable[bytes], artifact: Digest, annotations: Mapping[str, str]) -> Evidence:
        """Returns the evidence in `documents`, as `evidence.judge` does, with these keys."""
        from service.runtime.evidence import judge

        return judge(documents, self.keys, artifact, annotations)

    def require(self, evidence: Evidence, artifact: Digest) -> None:
        """Raises `Untrusted` if signatures are required, and no trusted key signed the evidence."""
        if self.keys and evidence.key is None:
            raise Untrusted(
                f"artifact {artifact} is not loaded: {evidence.problem}",
                hint="OCTET_TRUSTED_KEYS lists the trusted keys; octet verify shows who built an artifact",
            )


ANYBODY = Trust()
