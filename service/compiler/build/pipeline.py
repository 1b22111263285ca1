"""The whole pipeline: turns a model file into a verified artifact in the store.

Every step that reads the upload, or data derived from it, runs in a sandboxed child that can access only the files of
that step. This process starts the children, moves files between them, and writes the result to the store. It does not
load TVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from service.cache import Descriptor, Manifest, OciLayout
from service.compiler.build.answers import answering
from service.compiler.build.kernel_objects import kernel_objects
from service.compiler.build.padding import Padding, padding_of
from service.compiler.build.steps import CompileRequest, Steps
from service.compiler.messages.building import BuildResult
from service.compiler.messages.files import CONSTANTS_FILE, EXPECTED_FILE, PROBES_FILE
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    FORMAT_ANNOTATION,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    OPTIONS_ANNOTATION,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    ArtifactConfig,
    Report,
)
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.builds.build import Progress, Stage
from service.core.builds.options import batch_of
from service.core.digest import Digest, canonical_json
from service.core.models.buckets import accepting_shorter
from service.core.models.signature import ModelSignature
from service.core.provenance import Provenance, Signer, sealed, signer_of
from service.core.settings import Settings

__all__ = ["CompileRequest", "Made", "compile_model", "make"]


def compile_model(
    request: CompileRequest,
    layout: OciLayout,
    scratch: Path,
    progress: Progress,
    settings: Settings,
    *,
    tiles: Mapping[str, Sequence[int]] | None = None,
) -> Digest:
    """Compiles, links, verifies and publishes one model.

    Args:
        layout: the store to which the artifact and its reports are written.
        scratch: an empty directory on the store's file system; the caller removes it.
        tiles: tile sizes for layers that do not use the cost model's choice (`kernels.choices`).

    Returns:
        The digest of the artifact's manifest.

    Raises:
        OctetError: the model cannot be compiled, or the compiled model gives wrong results. The error names the stage
            and the operator.
        BuildCanceled: `progress` raises it if the build was canceled.
    """
    signer, started_at = signer_of(settings), _now()
    # The children run in other directories, so paths must be absolute.
    request = replace(request, source=request.source.absolute())
    steps = Steps(request, scratch.absolute(), progress, settings)
    imported = steps.imported()
    for notice in imported.facts.notices:
        progress.log(notice)
    signature = imported.signature.batched(batch_of(request.options))
    with answering(steps, signature, imported.format, imported.probes) as answers:
        padding = padding_of(steps, signature)
        made = make(steps, signature, tiles, padding=padding)
        expected = answers()
    if padding is not None:
        progress.log(f"shorter inputs are {'' if padding.exact else 'not '}padded: {padding.text}")
    numerics = steps.verify(made.config, made.library, made.built, expected, padding.shorter if padding else ())
    numerics |= {"padding": padding.to_json()} if padding else {}
    profile = steps.profile(made.config, made.library, made.built)
    progress.stage(Stage.PUBLISH)
    artifact = _publish(layout, made, request, imported.format)
    reports = {
        Report.NUMERICS: canonical_json(numerics),
        Report.COVERAGE: canonical_json(made.built.coverage),
        Report.FACTS: canonical_json(imported.facts.to_json()),
        Report.VECTORS: steps.output("oracle", EXPECTED_FILE).read_bytes(),
        **({Report.PROBES: steps.output("oracle", PROBES_FILE).read_bytes()} if expected.has_probes else {}),
        **({Report.PROFILE: canonical_json(profile)} if profile is not None else {}),
        **({Report.RANGES: canonical_json([each.to_json() for each in imported.ranges])} if imported.ranges else {}),
    }
    for kind, data in reports.items():
        layout.attach(artifact, kind, data)
    times = started_at, _now()
    builder = settings.builder_id, version("octet-serve")
    provenance = Provenance(artifact, steps.inputs(), *builder, *times, tiles=tiles or {}, stages_s=steps.times_s)
    _attach_provenance(layout, provenance, signer)
    return artifact


def _attach_provenance(layout: OciLayout, provenance: Provenance, signer: Signer | None) -> None:
    """Attaches the provenance to its artifact, in a signed envelope if a signing key is configured."""
    data, kind = sealed(provenance.to_bytes(), signer)
    layout.attach(provenance.artifact, Report.PROVENANCE, data, media_type=kind)


@dataclass(frozen=True)
class Made:
    """A model that was built and linked but not verified yet.

    Attributes:
        built: the result of the build child.
    """

    config: ArtifactConfig
    library: Path
    constants: Path
    built: BuildResult


def make(
    steps: Steps,
    signature: ModelSignature,
    tiles: Mapping[str, Sequence[int]] | None = None,
    rank: int = 0,
    *,
    padding: Padding | None = None,
) -> Made:
    """Builds and links the model that `steps` imported. `tiles` and `rank` are explained in `kernels.choices`.

    Args:
        padding: whether shorter inputs may be padded; None if the model takes inputs of one length.
    """
    padding = padding or Padding(False, "")
    states = len(signature.states)
    if padding.exact:
        signature = accepting_shorter(signature, padding.shorter[0].signature)
    varying = [spec.varies for spec in signature.inputs] if padding.longest else []
    built = steps.build(states, tiles, rank, module=padding.module, longest=padding.longest, varying=varying)
    library = steps.link(kernel_objects(steps, built.kernels))
    config = ArtifactConfig(signature, steps.request.target.name, steps.request.numerics, built.plan)
    return Made(config, library, steps.output("build", CONSTANTS_FILE), built)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _publish(layout: OciLayout, made: Made, request: CompileRequest, format_: str) -> Digest:
    """Writes the config, the layers and the manifest. The digest depends on their bytes and on the build's inputs."""
    manifest = Manifest(
        artifact_type=ARTIFACT_TYPE,
        config=layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(made.config.to_json())),
        layers=(
            layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, made.library),
            layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, made.constants),
        ),
        annotations={
            SOURCE_ANNOTATION: request.source_digest,
            TARGET_ANNOTATION: made.config.target,
            NUMERICS_ANNOTATION: made.config.numerics,
            FORMAT_ANNOTATION: format_,
            **({OPTIONS_ANNOTATION: canonical_json(request.options).decode()} if request.options else {}),
        },
        subject=None,
    )
    descriptor: Descriptor = layout.put_manifest(manifest)
    return descriptor.digest
