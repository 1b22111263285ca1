"""Whether an artifact may be loaded, by who built it: the signed provenance that is stored beside it.

Most who load artifacts ask for no signature, so what reads those is imported by need.
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
    """The keys of those whose artifacts are loaded; none: everybody's are."""

    keys: tuple[TrustedKey, ...] = ()

    @staticmethod
    def of(settings: Settings) -> Trust:
        """Raises as `trusted_keys`."""
        from service.core.provenance import trusted_keys

        return Trust(trusted_keys(settings))

    def check(self, layout: OciLayout, artifact: Digest) -> None:
        """Raises `Untrusted` unless a trusted key signed that it built `artifact`, or no key has to."""
        if self.keys:
            self.require(self.evidence(layout, artifact), artifact)

    def evidence(self, layout: OciLayout, artifact: Digest) -> Evidence:
        """Raises `NotFound` or `CorruptBlob`, where the artifact's manifest is gone or damaged."""
        from service.runtime.evidence import documents_about

        return self.judged(documents_about(layout, artifact), artifact, layout.manifest(artifact).annotations)

    def judged(self, documents: Iterable[bytes], artifact: Digest, annotations: Mapping[str, str]) -> Evidence:
        """As `evidence.judged`, with these keys."""
        from service.runtime.evidence import judged

        return judged(documents, self.keys, artifact, annotations)

    def require(self, evidence: Evidence, artifact: Digest) -> None:
        """Raises `Untrusted`, if keys are trusted, and the evidence is not of one of them."""
        if self.keys and evidence.key is None:
            raise Untrusted(
                f"artifact {artifact} is not loaded: {evidence.problem}",
                hint="OCTET_TRUSTED_KEYS names the keys that are trusted; octet verify says who built an artifact",
            )


ANYBODY = Trust()
