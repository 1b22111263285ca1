"""The whole road: a model file in, a verified artifact out.

Every step that reads the upload, or what was made of it, is a sandboxed child with the files of that step only. This
process starts them, moves files between them, and writes the result to the store; it loads no TVM.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from service.cache import Descriptor, Manifest, OciLayout
from service.compiler import toolchain
from service.compiler.answers import answering
from service.compiler.checking_roles import EXPECTED_FILE
from service.compiler.steps import CONSTANTS_FILE, CompileRequest, Steps
from service.core.artifact import (
    ARTIFACT_TYPE,
    CONFIG_MEDIA_TYPE,
    CONSTANTS_MEDIA_TYPE,
    FORMAT_ANNOTATION,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    OPTIONS_ANNOTATION,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    ArtifactConfig,
    Report,
    Slot,
)
from service.core.build import Progress, Stage
from service.core.digest import Digest, canonical_json
from service.core.facts import Facts
from service.core.options import batch_of
from service.core.settings import Settings
from service.core.signature import ModelSignature

__all__ = ["CompileRequest", "compile_model"]


def compile_model(
    request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
) -> Digest:
    """Compiles, links, verifies and publishes one model.

    Args:
        layout: where the artifact and its reports go.
        scratch: an empty directory on the store's file system; the caller removes it.

    Returns:
        The digest of the artifact's manifest.

    Raises:
        OctetError: the model cannot be compiled, or the compiled model is wrong; says at which stage and operator.
        BuildCanceled: `progress` said so.
    """
    # The children work elsewhere, so no path may be relative.
    request = replace(request, source=request.source.absolute())
    steps = Steps(request, scratch.absolute(), progress, settings)
    imported = steps.imported()
    signature = ModelSignature.from_json(imported["signature"]).batched(batch_of(request.options))
    with answering(steps, signature, imported["format"]) as answers:
        built = steps.build()
        library = steps.link([steps.output("build", name) for name in built["objects"]])
        witnesses = answers()
    config = ArtifactConfig(
        signature,
        request.target.name,
        request.numerics,
        "main",
        tuple(map(Slot.from_json, built["constants"])),
        tuple(map(Slot.from_json, built["activations"])),
        toolchain.abi(),
    )
    numerics = steps.verify(config, library, built, witnesses)
    progress.stage(Stage.PUBLISH)
    artifact = _publish(layout, config, library, steps.output("build", CONSTANTS_FILE), request, imported["format"])
    reports = {
        Report.NUMERICS: canonical_json(numerics),
        Report.COVERAGE: canonical_json(built["coverage"]),
        Report.FACTS: canonical_json(Facts.from_json(imported["facts"]).to_json()),
        Report.PROVENANCE: canonical_json({**steps.inputs(), "stages_s": steps.times_s}),
        Report.VECTORS: steps.output("oracle", EXPECTED_FILE).read_bytes(),
    }
    for kind, data in reports.items():
        layout.attach(artifact, kind, data)
    return artifact


def _publish(
    layout: OciLayout, config: ArtifactConfig, library: Path, constants: Path, request: CompileRequest, format_: str
) -> Digest:
    """Writes config, layers and manifest; the digest depends on their bytes and on what they were made of."""
    manifest = Manifest(
        artifact_type=ARTIFACT_TYPE,
        config=layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(config.to_json())),
        layers=(
            layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library),
            layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, constants),
        ),
        annotations={
            SOURCE_ANNOTATION: request.source_digest,
            TARGET_ANNOTATION: config.target,
            NUMERICS_ANNOTATION: config.numerics,
            FORMAT_ANNOTATION: format_,
            **({OPTIONS_ANNOTATION: canonical_json(request.options).decode()} if request.options else {}),
        },
        subject=None,
    )
    descriptor: Descriptor = layout.put_manifest(manifest)
    return descriptor.digest
