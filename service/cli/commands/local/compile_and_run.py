"""`octet compile` and `octet run`: compile and run a model without a server, for example on an edge device."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from service.cli.configuration import load_checked
from service.cli.options import (
    AcceptOption,
    ArtifactDir,
    ArtifactOption,
    DialectOption,
    FixOption,
    InputFiles,
    InputShapeOption,
    JsonOption,
    LabelsOption,
    LayoutOption,
    MeanOption,
    MemberOption,
    ModelFile,
    NumericsOption,
    RawOption,
    ResizeOption,
    SaveOption,
    SignatureOption,
    StdOption,
    TargetOption,
    ThreadsOption,
    TuneOption,
    UnsandboxedBuildOption,
    UnsandboxedOption,
    joined_shapes,
    joined_values,
    metadata_from,
)
from service.cli.output import reporting
from service.core.builds.options import MAX_BATCH
from service.core.digest import parse_digest
from service.core.errors import InvalidInput

OutputDir = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="DIR", help="The folder to write, an OCI image layout.", file_okay=False),
]


def compile(
    file: ModelFile,
    output_dir: OutputDir,
    target: TargetOption = "host",
    numerics: NumericsOption = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=MAX_BATCH, help="The batch size.")] = 1,
    member: MemberOption = "",
    signature: SignatureOption = "",
    input_shape: InputShapeOption = None,
    fix: FixOption = None,
    tune: TuneOption = None,
    accept_differences: AcceptOption = False,
    dialect: DialectOption = None,
    allow_unsandboxed: UnsandboxedBuildOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a model into a folder.

    Exit status 3: the folder was written, and its outputs differ from those of the reference runtime.
    """
    from service.cli.reports import label, summary
    from service.cli.stages import StageView
    from service.compiler.importers.uploads import upload_of
    from service.core.verification.agreement import different_from

    with reporting(as_json) as output:
        started_s = time.monotonic()
        from service.compiler.build.local import compile_to

        settings = load_checked({"allow_unsandboxed": allow_unsandboxed or None})
        with upload_of(file, member, signature) as upload, StageView(output.progress) as view:
            made = [
                compile_to(upload, output_dir, target, numerics, options, settings, view)
                for options in _options(
                    target, batch, tune, joined_shapes(input_shape), joined_values(fix), accept_differences
                )
            ]
            view.finish(time.monotonic())
        took_s, (digest, reports) = time.monotonic() - started_s, made[0]
        if as_json:
            document = {"artifact": digest, "directory": str(output_dir), "reports": reports, "seconds": took_s}
            buckets = [{"artifact": artifact, "reports": found_reports} for artifact, found_reports in made]
            output.document(document | ({"buckets": buckets} if len(made) > 1 else {}))
        for artifact, found_reports in made:
            if not as_json:
                output.show(
                    Text.assemble(f"{artifact} in {took_s:.2f} s, ", label(found_reports)), summary(found_reports)
                )
        for _, found_reports in made:
            if (different := different_from(found_reports.get("numerics", {}))) is not None:
                output.refuse(different)
        if as_json:
            return
        output.next_command(f"octet run {shlex.quote(str(output_dir))} INPUT")


def _options(
    target: str, batch: int, tune: str | None, input_shape: str, fix: str, accepts: bool
) -> list[dict[str, Any]]:
    """Returns the build options for each size bucket, or for the only build."""
    from service.core.builds.fixed import parse_fixed, with_fixed
    from service.core.builds.options import parse_open_shapes, parse_tune, with_acceptance, with_sizes, with_tuning
    from service.core.target import parse_target

    fixed, binds = parse_fixed(fix), target == "host" or parse_target(target).binds
    found = [
        with_acceptance(with_fixed(options, fixed), accepts)
        for options in with_sizes([batch], parse_open_shapes(input_shape), binds=binds)
    ]
    return [with_tuning(options, parse_tune(tune)) for options in found] if tune else found


def run(
    directory: ArtifactDir,
    inputs: InputFiles,
    artifact: ArtifactOption = None,
    labels: LabelsOption = None,
    mean: MeanOption = "",
    std: StdOption = "",
    resize: ResizeOption = None,
    layout: LayoutOption = None,
    save: SaveOption = None,
    raw: RawOption = False,
    threads: ThreadsOption = 0,
    unsandboxed: UnsandboxedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a compiled folder on a picture or a tensor."""
    from service.cli.predicting.answers import Answer, show_answer
    from service.core.verification.agreement import is_different
    from service.runtime.protocol import read_input

    with reporting(as_json) as output:
        from service.cache import OciLayout
        from service.cache.metadata import metadata_of
        from service.compiler.children.locked import LockedModel
        from service.core.artifacts.artifact import Report
        from service.runtime.image import decode

        stored = OciLayout.open(directory)
        model = LockedModel(
            stored, parse_digest(artifact) if artifact else None, load_checked(), unsandboxed=unsandboxed
        )
        specs = model.signature.inputs
        if len(specs) != len(inputs):
            names = ", ".join(spec.name for spec in specs)
            raise InvalidInput(f"the model has {len(specs)} inputs, but {len(inputs)} were given", hint=names)
        given = (read_input(path) for path in inputs)
        chosen = metadata_from(labels, mean, std, resize, layout)
        metadata = chosen.over(metadata_of(stored, model.digest))
        tensors = [
            decode(value, spec, metadata) if isinstance(value, bytes) else value
            for value, spec in zip(given, specs, strict=True)
        ]
        report = json.loads(stored.attached(model.digest, Report.NUMERICS) or b"{}")
        if is_different(report):
            output.note(f"this build differs from its reference runtime: {report.get('summary', '')}")
        outputs, took_s = model.run(tensors, threads)
        values = {spec.name: value for spec, value in zip(model.signature.outputs, outputs, strict=True)}
        answer = Answer(str(directory), values, model.signature.outputs, took_s, metadata.labels)
        show_answer(output, answer, labels, save, raw)
