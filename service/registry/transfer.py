"""Pushes a model to a registry and pulls it: its artifacts with their reports and signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.cache import MANIFEST_MEDIA_TYPE, Descriptor, Manifest, OciLayout
from service.cache.oci import INDEX_MEDIA_TYPE
from service.core.artifacts.artifact import ARTIFACT_TYPE, PUBLISHED, TARGET_ANNOTATION
from service.core.artifacts.compatibility import check_config_type
from service.core.digest import Digest, canonical_json, digest_of
from service.core.errors import InvalidInput, NotFound, TooLarge
from service.core.provenance import Signer
from service.registry import cosign
from service.registry.client import Registry, entries_of, fallback_tag

Choose = Callable[[Sequence[str]], str]
_MOST_ARTIFACTS, _MOST_REPORTS, _MOST_LAYERS = 64, 32, 4


def push(registry: Registry, artifacts: Sequence[tuple[OciLayout, Digest]], signer: Signer | None = None) -> Digest:
    """Uploads artifacts with their reports. The tag then refers to the only artifact, or to an index of all.

    Blobs that the registry has are not sent again, so that an interrupted push resumes where it stopped.

    Args:
        signer: signs the digest by cosign's conventions.

    Returns:
        The digest that the tag refers to.

    Raises:
        NotFound, CorruptBlob: a part of an artifact is missing or damaged.
        OctetError: see `Registry`.
    """
    reference = registry.reference
    if reference.tag is None or reference.digest is not None:
        raise InvalidInput(
            f"cannot push to {reference}: it must have a tag and no digest", hint="oci://HOST/REPOSITORY:TAG"
        )
    entries = [_push_artifact(registry, layout, digest) for layout, digest in artifacts]
    if len(entries) == 1:
        ((layout, digest),) = artifacts
        media_type, data = MANIFEST_MEDIA_TYPE, layout.blobs.read(digest)
    else:
        media_type = INDEX_MEDIA_TYPE
        listed = [entry.to_json() for entry in entries]
        data = canonical_json({"schemaVersion": 2, "mediaType": media_type, "manifests": listed})
    registry.put_manifest(reference.tag, media_type, data)
    if signer is not None:
        for signed in dict.fromkeys((digest_of(data), *(entry.digest for entry in entries))):
            cosign.sign(registry, signed, signer)
    return digest_of(data)


def _push_artifact(registry: Registry, layout: OciLayout, digest: Digest) -> Descriptor:
    """Uploads an artifact with its reports. Returns its entry in an index."""
    manifest = layout.manifest(digest)
    size_bytes, _ = _push_manifest(registry, layout, digest, manifest)
    unlisted = []
    for report in layout.referrers(digest):
        if report.artifact_type in PUBLISHED:
            size, is_listed = _push_manifest(registry, layout, report.digest, layout.manifest(report.digest))
            if not is_listed:
                unlisted.append(Descriptor(MANIFEST_MEDIA_TYPE, report.digest, size, {}, report.artifact_type))
    if unlisted:
        _list(registry, digest, unlisted)
    target = {TARGET_ANNOTATION: manifest.annotations.get(TARGET_ANNOTATION, "")}
    return Descriptor(MANIFEST_MEDIA_TYPE, digest, size_bytes, target, manifest.artifact_type)


def _push_manifest(registry: Registry, layout: OciLayout, digest: Digest, manifest: Manifest) -> tuple[int, bool]:
    """Uploads a manifest with its blobs. Returns its size, and whether the registry lists the manifest as a
    referrer.
    """
    for part in dict.fromkeys(each.digest for each in (manifest.config, *manifest.layers)):
        registry.put_blob(part, layout.blobs.path(part))
    data = layout.blobs.read(digest)
    return len(data), registry.put_manifest(digest, MANIFEST_MEDIA_TYPE, data)


def _list(registry: Registry, subject: Digest, reports: Sequence[Descriptor]) -> None:
    """Adds reports to the index under the fallback tag, in registries without the referrers API: the specification's
    "referrers tag schema". If two pushes run at the same time, the entries of one may be lost, as the specification
    warns.
    """
    tag = fallback_tag(subject)
    try:
        before = entries_of(registry.manifest(tag)[1])
    except NotFound:
        before = []
    entries = {entry.digest: entry for entry in (*reports, *before)}
    listed = [entry.to_json() for entry in entries.values()]
    index = {"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": listed}
    registry.put_manifest(tag, INDEX_MEDIA_TYPE, canonical_json(index))


def pull(registry: Registry, layout: OciLayout, most_bytes: int, choose: Choose | None = None) -> list[Digest]:
    """Stores and lists what the reference refers to: an artifact, or the artifacts of an index, with their reports.

    Blobs that the layout has are not fetched again.

    Args:
        most_bytes: the maximum size of all blobs together.
        choose: returns the target whose artifacts of an index are pulled; None: all targets.

    Raises:
        NotFound: the tag does not exist, or refers to no artifact for the chosen target.
        InvalidInput: the content is not an artifact of Octet, or is damaged.
        TooLarge: the content has more than `most_bytes`.
        Unsupported: an incompatible release created the artifact.
        OctetError: see `Registry`.
    """
    pulling = _Pulling(registry, layout, most_bytes)
    artifacts = pulling.artifacts()
    targets = sorted({_target(manifest) for manifest in artifacts.values()})
    target = choose(targets) if choose else None
    chosen = [digest for digest, manifest in artifacts.items() if target in (None, _target(manifest))]
    if not chosen:
        raise NotFound(
            f"{registry.reference} has no artifact for {target}", hint=f"it has some for {', '.join(targets)}"
        )
    for digest in chosen:
        pulling.artifact(digest, artifacts[digest])
    return chosen


@dataclass
class _Pulling:
    """The state of one pull.

    Attributes:
        left_bytes: how many bytes may still be fetched.
    """

    registry: Registry
    layout: OciLayout
    left_bytes: int

    def artifacts(self) -> dict[Digest, Manifest]:
        """Returns the manifests that the reference refers to, by digest."""
        reference = self.registry.reference
        media_type, data = self.registry.manifest(reference.name)
        if media_type != INDEX_MEDIA_TYPE:
            return {digest_of(data): self._parse(data)}
        entries = entries_of(data)
        found = [entry for entry in entries if entry.artifact_type in (None, ARTIFACT_TYPE)]
        if not 1 <= len(found) <= _MOST_ARTIFACTS:
            raise InvalidInput(f"{reference} lists {len(found)} artifacts, not 1 to {_MOST_ARTIFACTS}")
        return {entry.digest: self._parse(self.registry.manifest(entry.digest)[1]) for entry in found}

    def artifact(self, digest: Digest, manifest: Manifest) -> None:
        check_config_type(manifest.config.media_type)
        self._fetch_blobs(manifest)
        self.layout.put_manifest(manifest)
        reports = [each for each in self.registry.referrers(digest) if each.artifact_type in PUBLISHED]
        for entry in reports[:_MOST_REPORTS]:
            report = Manifest.from_bytes(self.registry.manifest(entry.digest)[1])
            # the store would write a report by another tool with bytes that differ from the original, so such reports
            # are left out
            is_canonical = digest_of(report.to_bytes()) == entry.digest
            if is_canonical and report.subject is not None and report.subject.digest == digest:
                self._fetch_blobs(report)
                self.layout.put_manifest(report)

    def _fetch_blobs(self, manifest: Manifest) -> None:
        if len(manifest.layers) > _MOST_LAYERS:
            raise InvalidInput(
                f"a manifest of {self.registry.reference} has {len(manifest.layers)} layers, more than {_MOST_LAYERS}"
            )
        for part in (manifest.config, *manifest.layers):
            self.left_bytes -= part.size_bytes
            if self.left_bytes < 0:
                raise TooLarge(
                    f"{self.registry.reference} exceeds the size limit", hint="OCTET_MAX_UPLOAD_BYTES is the limit"
                )
            self.registry.fetch(part, self.layout.blobs)

    def _parse(self, data: bytes) -> Manifest:
        manifest = Manifest.from_bytes(data)
        if manifest.artifact_type != ARTIFACT_TYPE or manifest.to_bytes() != data:
            raise InvalidInput(
                f"{self.registry.reference} is not an artifact of Octet", hint="octet push --to uploads one"
            )
        return manifest


def _target(manifest: Manifest) -> str:
    return manifest.annotations.get(TARGET_ANNOTATION, "")
