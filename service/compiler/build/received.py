"""Verifies artifacts that were compiled elsewhere, and publishes them here.

No part of such an artifact is trusted. Its blobs are hashed, and its library runs in the sandbox on inputs that this
process generates. The artifact is published only if the outputs equal the expected outputs. The expected outputs come
with the artifact, so the comparison shows that the artifact gives the same results on this machine as on the one that
compiled it. The comparison does not show who compiled the artifact; a signature does. If trusted keys are configured,
an artifact without a trusted signature is rejected before any of its code is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.cache import Descriptor, OciLayout
from service.compiler.build.artifact_archive import Received, received
from service.compiler.build.expected import Answers, Expected
from service.compiler.build.steps import LIBRARY_FILE, CompileRequest, Steps
from service.compiler.messages.building import BuildResult
from service.compiler.messages.files import CONSTANTS_FILE, EXPECTED_FILE, PROBES_FILE
from service.core.artifacts.artifact import ArtifactConfig, Report
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.artifacts.explanation import build_explanation
from service.core.builds.build import Progress, Stage
from service.core.builds.options import accepts_differences, with_acceptance
from service.core.digest import Digest, canonical_json, digest_of_file
from service.core.errors import DigestMismatch, InvalidInput, MalformedModel, OctetError, Unsupported
from service.core.models.facts import Facts
from service.core.settings import Settings
from service.core.verification.agreement import keep_build_difference, may_serve
from service.core.verification.vectors import PATTERNS, input_kinds
from service.core.verification.witnesses import Witness
from service.runtime.trust import Trust

WITNESS = Witness("the outputs that came with the artifact", is_own=True)
_MOST_SAMPLES = 1000


def publish_received(
    request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
) -> Digest:
    """Verifies the artifact in the archive `request.source` on this machine, and publishes it.

    Args:
        scratch: an empty directory on the store's file system; the caller removes it.

    Returns:
        The digest of the artifact's manifest.

    Raises:
        Untrusted: the artifact is not signed with a trusted key.
        OctetError: the artifact is damaged, was compiled for another target or mode than requested, cannot be loaded
            here, or its outputs differ from the expected ones.
        BuildCanceled: `progress` raises it if the build was canceled.
    """
    found = received(request.source)
    accepts = accepts_differences(request.options)
    options = with_acceptance(found.options, accepts)  # differences may also be accepted when an artifact is received
    if (found.target, found.numerics, options) != (request.target, request.numerics, dict(request.options)):
        raise InvalidInput(
            f"artifact {found.digest} was not compiled as requested, but for {found.target}, {found.numerics}",
            stage=Stage.FETCH,
        )
    trust, origin = Trust.of(settings), _origin(found)
    evidence = trust.judge(filter(None, [origin]), found.digest, found.manifest.annotations)
    trust.require(evidence, found.digest)
    if evidence.provenance is None:
        progress.log(f"it is not known who built the artifact: {evidence.problem}")
    steps = Steps(request, scratch.absolute(), progress, settings)
    library, constants, expected = (
        _extracted(found, layer, scratch / step / name)
        for layer, step, name in (
            (found.manifest.layers[0], "link", LIBRARY_FILE),
            (found.manifest.layers[1], "build", CONSTANTS_FILE),
            (_content(found, Report.VECTORS), "oracle", EXPECTED_FILE),
        )
    )
    probes = None
    if Report.PROBES in found.reports:
        probes = _extracted(found, _content(found, Report.PROBES), scratch / "oracle" / PROBES_FILE)
    config_bytes = found.archive.read(found.manifest.config.digest)
    config = _config(config_bytes, request)
    reports = _reports(found, config, progress)
    coverage = json.loads(reports.get(Report.COVERAGE, b"{}"))
    built = BuildResult(kernels=(), plan=config.plan, coverage=coverage, tiles=(), formulas={}, deviations=())
    answers = Answers(
        input_kinds(_MOST_SAMPLES if probes is None else PATTERNS, _MOST_SAMPLES),
        [Expected(WITNESS, expected, probes)],
        no_witness="no other runtime was run here",
    )
    numerics = keep_build_difference(steps.verify(config, library, built, answers), _earlier(found), accepts=accepts)
    profile = steps.profile(config, library, built)
    progress.stage(Stage.PUBLISH)
    for part, content in ((found.manifest.layers[0], library), (found.manifest.layers[1], constants)):
        layout.put_blob_descriptor(part.media_type, content)
    layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, config_bytes)
    artifact = layout.put_manifest(found.manifest).digest
    reports[Report.VECTORS] = expected.read_bytes()
    reports |= {} if probes is None else {Report.PROBES: probes.read_bytes()}
    if not accepts and _is_verified(layout, artifact):  # the reports of an earlier verification on this server stay
        is_better = evidence.key is not None and trust.evidence(layout, artifact).key is None
    else:
        found_here = {} if profile is None else {Report.PROFILE: canonical_json(profile)}
        for kind, data in {**reports, **found_here, Report.NUMERICS: canonical_json(numerics)}.items():
            # the numerics report is attached last, because the artifact can be served as soon as it exists
            layout.attach(artifact, kind, data)
        is_better = evidence.provenance is not None
    if is_better and origin is not None:
        layout.attach(artifact, Report.PROVENANCE, origin, media_type=_content(found, Report.PROVENANCE).media_type)
    return artifact


def _is_verified(layout: OciLayout, artifact: Digest) -> bool:
    known = layout.attached(artifact, Report.NUMERICS)
    return known is not None and may_serve(json.loads(known))


def _earlier(found: Received) -> dict[str, Any]:
    """Returns the numerics report of the original build, or {} if it is missing or cannot be read."""
    if Report.NUMERICS not in found.reports:
        return {}
    try:
        report = json.loads(found.archive.read(_content(found, Report.NUMERICS).digest))
    except (OctetError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def _origin(found: Received) -> bytes | None:
    """Returns the provenance in the archive, or None if it has none."""
    if Report.PROVENANCE not in found.reports:
        return None
    return found.archive.read(_content(found, Report.PROVENANCE).digest)


def _extracted(found: Received, blob: Descriptor, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    found.archive.extract(blob, path)
    if digest_of_file(path) != blob.digest:
        raise DigestMismatch(f"blob {blob.digest} of the archive is damaged", stage=Stage.FETCH, hint="send it again")
    return path


def _content(found: Received, kind: Report) -> Descriptor:
    manifest = found.reports.get(kind)
    if manifest is None or len(manifest.layers) != 1:
        name = kind.name.lower()
        raise InvalidInput(f"artifact {found.digest} has no {name}", stage=Stage.FETCH, hint="compile the model again")
    return manifest.layers[0]


def _config(data: bytes, request: CompileRequest) -> ArtifactConfig:
    try:
        config = ArtifactConfig.from_json(json.loads(data))
    except Unsupported as error:
        raise Unsupported(error.message, stage=Stage.FETCH, hint=error.hint) from error
    except (OctetError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedModel(f"the artifact's config cannot be read: {error}", stage=Stage.FETCH) from error
    if (config.target, config.numerics) != (request.target.name, request.numerics):
        raise MalformedModel("the artifact's config names another target than its manifest", stage=Stage.FETCH)
    return config


def _reports(found: Received, config: ArtifactConfig, progress: Progress) -> dict[Report, bytes]:
    """Returns those reports of the original build that can be read."""
    checks: dict[Report, Callable[[dict[str, Any]], dict[str, Any]]] = {
        Report.COVERAGE: lambda document: build_explanation(document).to_json() and document,
        Report.FACTS: lambda document: {**Facts.from_json(document).to_json(), "signature": config.signature.to_json()},
    }
    reports: dict[Report, bytes] = {}
    for kind, check in checks.items():
        try:
            document = json.loads(found.archive.read(_content(found, kind).digest))
            reports[kind] = canonical_json(check(document))
        except (OctetError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            progress.log(f"the artifact came without a {kind.name.lower()} report that can be read: {error}")
    return reports
