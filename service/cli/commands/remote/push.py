"""`octet push`: uploads a file, follows its build, and shows the checks of the result."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from service.cli.configuration import load_checked, server_flag
from service.cli.connection import connect
from service.cli.following import BUILT, NOT_BUILT, error_of, short_id
from service.cli.options import (
    AcceptOption,
    BatchOption,
    ColumnsOption,
    FixOption,
    InputShapeOption,
    JsonOption,
    KeyOption,
    LabelsOption,
    LayoutOption,
    ListOption,
    MaxLengthOption,
    MeanOption,
    MemberOption,
    ModelFileOrArtifact,
    NormalizeOption,
    NumericsOption,
    PlainHttpOption,
    PoolingOption,
    ResizeOption,
    SamplingRateOption,
    ServerOption,
    SignatureOption,
    StdOption,
    TaskOption,
    TokenizerOption,
    TuneOption,
    VariantOption,
    joined_shapes,
    joined_values,
    metadata_from,
)
from service.cli.output import Output, reporting
from service.cli.versions import resolve_model
from service.core.errors import Different
from service.core.models.model import model_name_of
from service.core.models.text import TextProcessing, parse_pooling

if TYPE_CHECKING:
    pass


def push(
    file: ModelFileOrArtifact,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="oci://HOST/REPOSITORY:TAG",
            help="Push a compiled folder, or a model on the server (NAME:VERSION), to an OCI registry instead.",
        ),
    ] = None,
    plain_http: PlainHttpOption = False,
    name: Annotated[
        str | None, typer.Option("--name", help="The model's name.", show_default="the file's name")
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help='The target to compile for, one that octet targets lists. "host": the best target that the server '
            'or a worker of its cluster runs. "all": every target that a worker serves.',
        ),
    ] = "host",
    numerics: NumericsOption = None,
    batch: BatchOption = "1",
    tune: TuneOption = None,
    member: MemberOption = "",
    signature: SignatureOption = "",
    input_shape: InputShapeOption = None,
    fix: FixOption = None,
    labels: LabelsOption = None,
    mean: MeanOption = "",
    std: StdOption = "",
    resize: ResizeOption = None,
    layout: LayoutOption = None,
    sampling_rate: SamplingRateOption = None,
    columns: ColumnsOption = "",
    variant: VariantOption = None,
    lists: ListOption = False,
    task: TaskOption = None,
    tokenizer: TokenizerOption = None,
    pooling: PoolingOption = None,
    normalize: NormalizeOption = None,
    max_length: MaxLengthOption = None,
    accept_differences: AcceptOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the build.")] = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload a model, compile it, and show the checks of the result. A compiled folder is verified instead of compiled.

    From the folder of a published model, the best variant for the target is pushed, with the tokenizer, labels and
    preprocessing that the folder defines.

    Exit status 3: the model was built but is not served, because its outputs differ from the reference runtime's.

    Other batch sizes and tuning run as separate builds in the background; octet builds lists them.
    """
    from service.cli.artifacts import send_score
    from service.cli.published import (
        Description,
        describe_artifact,
        describe_file,
        folder_query,
        packed_folder,
        show_folder,
        show_variants,
        target_of,
    )
    from service.cli.pushing import follow_other_targets, push_artifact, push_model
    from service.compiler.importers.published.files import Folder
    from service.compiler.importers.published.reading import is_published, name_of
    from service.compiler.importers.published.variants import choose
    from service.compiler.importers.uploads import upload_of
    from service.core.builds.fixed import parse_fixed
    from service.core.builds.options import parse_open_shapes
    from service.core.target import ALL

    options = {"batch": batch} | ({"tune": tune} if tune else {})
    options |= {"input_shape": joined_shapes(input_shape)} if input_shape else {}
    options |= {"fix": joined_values(fix)} if fix else {}
    accept = {"accept_differences": "true"} if accept_differences else {}
    if to is not None:
        _push_to(str(file), to, plain_http, server, key, as_json)
        return
    if not file.exists():
        raise typer.BadParameter(f"{file} does not exist")
    is_folder = is_published(file)
    if not is_folder and (variant or lists):
        raise typer.BadParameter("--variant and --list need the folder of a published model")
    if lists:
        with reporting(as_json) as output:
            show_variants(output, file, variant, target)
        return
    if file.is_dir() and not is_folder and (target, numerics, options) != ("host", None, {"batch": "1"}):
        which = "--target, --numerics, --batch, --tune, --input-shape and --fix"
        raise typer.BadParameter(f"{file} is already compiled, so {which} do not apply")
    with reporting(as_json) as output, connect(server, key) as client:
        ways = parse_pooling(pooling) if pooling else ()
        text = TextProcessing(max_length=max_length, pooling=ways, normalize=normalize)
        metadata = metadata_from(labels, mean, std, resize, layout, task, text, sampling_rate, columns)
        name = name or (name_of(file) if is_folder else model_name_of(file))
        if is_folder:
            folder = Folder(file)
            chosen = choose(folder, variant, target_of(client, target))
            given = options | accept | folder_query(chosen, text)
            described, show = Description(metadata), partial(show_folder, output, client, name, folder)
            with packed_folder(folder, chosen, tokenizer) as upload:
                pushed = push_model(client, upload, name, target, numerics, output, given, detach, described, show)
            input_shape = input_shape or list(filter(None, [pushed["published"].pop("input_shape")]))
        elif file.is_dir():
            from service.compiler.build.artifact_archive import archive_of

            described = describe_artifact(file, metadata, tokenizer)
            with archive_of(file) as upload:
                pushed = push_artifact(client, upload, name, output, detach, described, accept)
            send_score(client, file, pushed["build"]["artifact"], output)
        else:
            described = describe_file(metadata, tokenizer)
            with upload_of(file, member, signature) as upload:
                pushed = push_model(client, upload, name, target, numerics, output, options | accept, detach, described)
        if target == ALL:
            common = {
                "numerics": numerics,
                "input_shapes": parse_open_shapes(joined_shapes(input_shape)),
                "fixed_inputs": parse_fixed(joined_values(fix)),
                "accept_differences": accept_differences,
            }
            pushed["others"] = follow_other_targets(client, name, pushed["build"], common, output, detach)
        if as_json:
            output.document(pushed)
        else:
            for each in (pushed, *pushed.get("others", ())):
                _show(output, each, server)
        failures = [each["build"] for each in pushed.get("others", ()) if each["build"]["state"] in NOT_BUILT]
        if failures:
            raise error_of(failures[0])
        for each in (pushed, *pushed.get("others", ())):
            error = error_of(each["build"]) if each["build"]["state"] == "different" else None
            if isinstance(error, Different):
                output.refuse(error)


def _push_to(given: str, to: str, plain_http: bool, server: str | None, key: str | None, as_json: bool) -> None:
    from service.cli.registry import push_folder, push_served, with_plain_http

    settings = with_plain_http(load_checked(), plain_http)
    with reporting(as_json) as output:
        if Path(given).is_dir():
            digest = push_folder(Path(given), to, settings)
        else:
            with connect(server, key) as client:
                digest = push_served(client, *resolve_model(client, given), to, settings)
        if as_json:
            output.document({"reference": to, "digest": digest})
            return
        output.show(f"{to}: {digest}")
        output.next_command(f"octet pull {shlex.quote(to)} DIR")


def _show(output: Output, pushed: dict[str, Any], server: str | None) -> None:
    from service.cli.reports import is_verified, label, summary

    build = pushed["build"]
    where = f"{build['model']} version {build['version']}, {build['target']}, {build['numerics']}"
    if build["state"] not in BUILT:
        output.show(f"{where}: {build['state']} as build {short_id(build['id'])}")
        output.next_command(f"octet builds {short_id(build['id'])}{server_flag(server)}")
        return
    how = "built before, reused from the cache" if pushed["cached"] else "built"
    took = f"{where}: {how} in {pushed['seconds']:.2f} s"
    output.show(Text.assemble(took, ", ", label(pushed["reports"])), summary(pushed["reports"]))
    if build["state"] == "different":
        return
    if is_verified(pushed["reports"]):
        output.next_command(f"octet predict {build['model']} INPUT{server_flag(server)}")
    elif pushed["reports"]:
        output.next_command(f"octet matrix {build['model']}{server_flag(server)}")  # shows whether a worker verified it
