"""Options and arguments that several commands share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from service.core.errors import InvalidInput
from service.core.metadata import Layout, ModelMetadata, Resize, parse_labels, parse_numbers
from service.core.settings import Settings, load_settings

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", envvar="OCTET_SERVER", help="The server's URL.", show_default="http://OCTET_HOST:OCTET_PORT"
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", envvar="OCTET_KEY", help="The API key, if the server requires one.", show_default=False),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="OCTET_DATA_DIR", help="The folder for models, builds and artifacts.", file_okay=False
    ),
]
ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A quantized model: TFLite, TorchScript, ONNX, MXNet's symbol.",
        exists=True,
        dir_okay=False,
    ),
]
ModelFileOrArtifact = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIR",
        help="A quantized model: TFLite, TorchScript, ONNX, MXNet's symbol; or a folder that octet compile wrote.",
    ),
]
ArtifactDir = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder that octet compile wrote.", exists=True, file_okay=False)
]
ArtifactOption = Annotated[
    str | None,
    typer.Option("--artifact", help="The artifact's digest, if the folder holds several.", show_default="the only one"),
]
UnsandboxedOption = Annotated[
    bool, typer.Option("--unsandboxed", help="Let the artifact's code do all that you may; it is native code.")
]
FolderOrModel = Annotated[
    str,
    typer.Argument(
        metavar="DIR|MODEL",
        help="A folder that octet compile wrote, or a model of the server, which is downloaded and run here.",
    ),
]
SecondsOption = Annotated[float, typer.Option("--seconds", min=0, help="Approximately how long to measure.")]
InputFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="INPUT...",
        help="A JPEG or PNG, or a tensor in a .npy file; for a model with several inputs, one file for each.",
        exists=True,
        dir_okay=False,
    ),
]
TargetOption = Annotated[
    str, typer.Option("--target", help='The target to compile for: one that octet doctor lists, or "host".')
]
NumericsOption = Annotated[
    str | None,
    typer.Option(
        "--numerics", help="The runtime whose arithmetic to follow, bit for bit.", show_default="by the file's format"
    ),
]
BatchOption = Annotated[
    str,
    typer.Option("--batch", metavar="SIZES", help="Batch sizes, such as 1,8,16. 1 is built and served first."),
]
InputShapeOption = Annotated[
    str,
    typer.Option(
        "--input-shape",
        "--shape",
        metavar="[NAME=]N,C,H,W",
        help="The input's shape, if the file leaves it open; for several inputs, x=…;y=…; 1x[16,32,64] for a choice.",
        show_default=False,
    ),
]
TuneOption = Annotated[
    str | None,
    typer.Option("--tune", metavar="TIME", help="How long to look for faster tiles, such as 60s.", show_default="not"),
]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-differences", help="Accept a result that differs from its reference runtime, and record that."
    ),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option("--labels", help="A file with one label per line, class 0 first.", exists=True, dir_okay=False),
]
SaveOption = Annotated[
    Path | None, typer.Option("--save", help="Also write the first output to this .npy file.", dir_okay=False)
]
MeanOption = Annotated[
    str,
    typer.Option(
        "--mean",
        metavar="M[,M,M]",
        help="Pictures become (pixel / 255 - mean) / std: one number for each channel, or one for all.",
        show_default=False,
    ),
]
StdOption = Annotated[str, typer.Option("--std", metavar="S[,S,S]", help="See --mean.", show_default=False)]
ResizeOption = Annotated[
    Resize | None, typer.Option("--resize", help="How pictures are fitted.", show_default="stretch")
]
LayoutOption = Annotated[
    Layout | None, typer.Option("--layout", help="Of the image input, where its shape leaves that open.")
]
RawOption = Annotated[
    bool, typer.Option("--raw", help="Show the stored integers of quantized outputs instead of real values.")
]


def load_checked(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings. An error in them is reported as a usage error."""
    try:
        return load_settings(flags)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise typer.BadParameter(wrong) from error


def is_reference(given: str) -> bool:
    """Whether it names something in an OCI registry, and no file."""
    return given.startswith("oci://")


def metadata_from(
    labels: Path | None, mean: str, std: str, resize: Resize | None, layout: Layout | None
) -> ModelMetadata:
    """The model metadata that the options give. Raises `InvalidInput`."""
    return ModelMetadata(read_labels(labels) if labels else (), parse_numbers(mean), parse_numbers(std), resize, layout)


def read_labels(path: Path) -> tuple[str, ...]:
    """One label a line, the first for class 0. Raises `InvalidInput`: it is no text."""
    try:
        return parse_labels(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not a text in UTF-8", hint="one label a line, class 0 first") from error


def server_url(server: str | None) -> str:
    """`server`, or the address at which `octet serve` would listen here."""
    if server:
        return server if "://" in server else f"http://{server}"
    settings = load_checked()
    return local_url(settings.host, settings.port, tls=settings.tls_cert is not None)


def server_flag(server: str | None) -> str:
    """The option that a suggested command needs to reach the same server; empty where the environment names it."""
    return f" --server {shlex.quote(server)}" if server and server != os.environ.get("OCTET_SERVER") else ""


def local_url(host: str, port: int, tls: bool = False) -> str:
    """The URL by which this machine reaches a server that listens on `host`; 0.0.0.0 and :: are no addresses to ask."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://" + (f"[{reachable}]" if ":" in reachable else reachable) + f":{port}"
