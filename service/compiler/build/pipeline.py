"""The whole pipeline: a model file in, a verified artifact out.

Every step that reads the upload, or what was made of it, is a sandboxed child with the files of that step only. This
process starts them, moves files between them, and writes the result to the store; it loads no TVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from service.cache import Descriptor, Manifest, OciLayout
from service.compiler.build.answers import answering
from service.compiler.build.padding import Padding, padding_of
from service.compiler.build.steps import CONSTANTS_FILE, CompileRequest, Steps
from service.compiler.children.checking_roles import EXPECTED_FILE, PROBES_FILE
from service.core.artifact import (
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
from service.core.build import Progress, Stage
from service.core.call_plan import CallPlan
from service.core.compatibility import CONFIG_MEDIA_TYPE
from service.core.digest import Digest, canonical_json
from service.core.errors import BuildFailed
from service.core.facts import Facts
from service.core.options import batch_of
from service.core.provenance import ENVELOPE_MEDIA_TYPE, STATEMENT_MEDIA_TYPE, Provenance, Signer, signer_of
from service.core.settings import Settings
from service.core.signature import ModelSignature
from service.core.vectors import MOST_PROBES

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
        layout: where the artifact and its reports go.
        scratch: an empty directory on the store's file system; the caller removes it.
        tiles: for layers that are to be computed otherwise than the cost model says (`kernels.choices`).

    Returns:
        The digest of the artifact's manifest.

    Raises:
        OctetError: the model cannot be compiled, or the compiled model is wrong; says at which stage and operator.
        BuildCanceled: `progress` said so.
    """
    signer, started_at = signer_of(settings), _now()
    # The children work elsewhere, so no path may be relative.
    request = replace(request, source=request.source.absolute())
    steps = Steps(request, scratch.absolute(), progress, settings)
    imported = steps.imported()
    facts = Facts.from_json(imported["facts"])
    for notice in facts.notices:
        progress.log(notice)
    signature = ModelSignature.from_json(imported["signature"]).batched(batch_of(request.options))
    with answering(steps, signature, imported["format"], _count(imported["probes"])) as answers:
        made = make(steps, signature, tiles)
        padding = padding_of(steps, signature)
        expected = answers()
    if padding is not None:
        made = made.padding(padding)
        progress.log(f"shorter inputs are {'' if padding.exact else 'not '}filled up: {padding.text}")
    numerics = steps.verify(made.config, made.library, made.built, expected)
    numerics |= {"padding": padding.to_json()} if padding else {}
    profile = steps.profile(made.config, made.library, made.built)
    progress.stage(Stage.PUBLISH)
    artifact = _publish(layout, made, request, imported["format"])
    reports = {
        Report.NUMERICS: canonical_json(numerics),
        Report.COVERAGE: canonical_json(made.built["coverage"]),
        Report.FACTS: canonical_json(facts.to_json()),
        Report.VECTORS: steps.output("oracle", EXPECTED_FILE).read_bytes(),
        **({Report.PROBES: steps.output("oracle", PROBES_FILE).read_bytes()} if expected.has_probes else {}),
        **({Report.PROFILE: canonical_json(profile)} if profile is not None else {}),
    }
    for kind, data in reports.items():
        layout.attach(artifact, kind, data)
    times = started_at, _now()
    builder = settings.builder_id, version("octet-serve")
    provenance = Provenance(artifact, steps.inputs(), *builder, *times, tiles=tiles or {}, stages_s=steps.times_s)
    _attach_provenance(layout, provenance, signer)
    return artifact


def _count(probes: object) -> int:
    """The import child's word on how many inputs the oracle shall choose."""
    if type(probes) is not int or not 0 <= probes <= MOST_PROBES:
        raise BuildFailed("the import process did not report how many inputs to check", stage=Stage.IMPORT)
    return probes


def _attach_provenance(layout: OciLayout, provenance: Provenance, signer: Signer | None) -> None:
    """Attaches it to its artifact: as it is, or in an envelope with a signature, where there is a key for that."""
    data, kind = provenance.to_bytes(), STATEMENT_MEDIA_TYPE
    if signer is not None:
        data, kind = signer.seal(kind, data).to_bytes(), ENVELOPE_MEDIA_TYPE
    layout.attach(provenance.artifact, Report.PROVENANCE, data, media_type=kind)


@dataclass(frozen=True)
class Made:
    """A model that was built and linked, and not yet verified.

    Attributes:
        built: what the build child said.
    """

    config: ArtifactConfig
    library: Path
    constants: Path
    built: Mapping[str, Any]

    def padding(self, padding: Padding) -> Made:
        """The same, of which the signature says whether it answers shorter inputs."""
        signature = replace(self.config.signature, pads=padding.exact)
        return replace(self, config=replace(self.config, signature=signature))


def make(
    steps: Steps, signature: ModelSignature, tiles: Mapping[str, Sequence[int]] | None = None, rank: int = 0
) -> Made:
    """Builds and links what `steps` has imported; `tiles` and `rank` as in `kernels.choices`."""
    built = steps.build(len(signature.states), tiles, rank)
    library = steps.link(steps.kernels(built["kernels"]))
    plan = CallPlan.from_json(built["plan"])
    config = ArtifactConfig(signature, steps.request.target.name, steps.request.numerics, plan)
    return Made(config, library, steps.output("build", CONSTANTS_FILE), built)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _publish(layout: OciLayout, made: Made, request: CompileRequest, format_: str) -> Digest:
    """Writes config, layers and manifest; the digest depends on their bytes and on what they were made of."""
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
