"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.completion import complete_model
from service.core.builds import dialects
from service.core.errors import InvalidInput
from service.core.models.metadata import Layout, ModelMetadata, Resize, parse_labels, parse_numbers
from service.core.models.task import Task
from service.core.models.text import MAX_TOKENS, NO_TEXT, TextProcessing

if TYPE_CHECKING:
    pass

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
DialectOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--dialect",
        metavar="FILE",
        help="A Python file that extends the compiler with operators, patterns, passes or formats. Repeatable.",
        callback=lambda given: configure_dialects(given) or given,
        exists=True,
        dir_okay=False,
    ),
]
ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A quantized model: TFLite, TorchScript, ONNX, an OpenVINO graph or an MXNet symbol.",
        exists=True,
        dir_okay=False,
    ),
]
ModelFileOrArtifact = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIR",
        help="A quantized model (TFLite, TorchScript, ONNX, an OpenVINO graph or an MXNet symbol), the folder of a "
        "model as Hugging Face has it, or a folder that octet compile wrote.",
    ),
]
ArtifactDir = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder that octet compile wrote.", exists=True, file_okay=False)
]
ArtifactOption = Annotated[
    str | None,
    typer.Option(
        "--artifact", help="The artifact's digest, if the folder contains several.", show_default="the only one"
    ),
]
UnsandboxedOption = Annotated[
    bool,
    typer.Option(
        "--unsandboxed", help="Run the artifact's native code without a sandbox, with all permissions of your user."
    ),
]
# The same spelling for commands that compile or read a model file: these continue only if no sandbox is possible.
UnsandboxedBuildOption = Annotated[
    bool,
    typer.Option("--unsandboxed", help="Continue without a sandbox if this kernel does not support one."),
]
FolderOrModel = Annotated[
    str,
    typer.Argument(
        metavar="DIR|MODEL[:VERSION|@ALIAS]",
        help="A folder that octet compile wrote, or a model on the server, which is downloaded and run here.",
        autocompletion=complete_model,
    ),
]
ThreadsOption = Annotated[
    int, typer.Option("--threads", min=0, help="Threads to compute with; 0: all cores that this process may use.")
]
ClassesOfInputsOption = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        help="A CSV file with the correct classes: rows of file,class for pictures, or of class alone for arrays.",
        exists=True,
        dir_okay=False,
    ),
]
SecondsOption = Annotated[float, typer.Option("--seconds", min=0, help="Approximately how long to measure.")]
InputFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="INPUT...",
        help="A JPEG or PNG picture, or a tensor in a .npy file. One file for each input of the model.",
        exists=True,
        dir_okay=False,
    ),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        help='The target to compile for: one that octet targets lists, or "host" for the best that runs here.',
    ),
]
NumericsOption = Annotated[
    str | None,
    typer.Option(
        "--numerics",
        help="The runtime whose results to reproduce, bit for bit.",
        show_default="the usual one for the file's format",
    ),
]
BatchOption = Annotated[
    str,
    typer.Option(
        "--batch", metavar="SIZES", help="Batch sizes to build, such as 1,8,16. Size 1 is built and served first."
    ),
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        "--shape",
        metavar="[NAME=]N,C,H,W",
        help="The input's shape, if the file leaves it open. Several inputs: x=…;y=…, or the option for each. Several "
        "sizes: 1x[16,32,64], or one build for all sizes up to a limit: 1x..128.",
        show_default=False,
    ),
]
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        metavar="NAME=VALUE[,VALUE]",
        help="Make an input a constant with this value, such as sr=16000, so that requests do not send it. One value "
        "fills an input of any shape. Repeatable.",
        show_default=False,
    ),
]
MemberOption = Annotated[
    str,
    typer.Option(
        "--member",
        metavar="NAME",
        help="The model in a bundle of TFLite models (.task or .litertlm).",
        show_default="the only one",
    ),
]
SignatureOption = Annotated[
    str,
    typer.Option(
        "--signature",
        metavar="NAME",
        help="The entry point of a TFLite file with several signatures.",
        show_default="the first one",
    ),
]
TuneOption = Annotated[
    str | None,
    typer.Option(
        "--tune", metavar="TIME", help="Search this long for faster tile sizes, such as 60s.", show_default="no search"
    ),
]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-differences", help="Accept outputs that differ from the reference runtime's, and record that."
    ),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option("--labels", help="A text file with one label per line, class 0 first.", exists=True, dir_okay=False),
]
SaveOption = Annotated[
    Path | None, typer.Option("--save", help="Also write the first output to this .npy file.", dir_okay=False)
]
MeanOption = Annotated[
    str,
    typer.Option(
        "--mean",
        metavar="M[,M,M]",
        help="Normalizes pictures: (pixel / 255 - mean) / std. One number for each channel, or one for all.",
        show_default=False,
    ),
]
StdOption = Annotated[
    str, typer.Option("--std", metavar="S[,S,S]", help="The standard deviation; see --mean.", show_default=False)
]
ResizeOption = Annotated[
    Resize | None,
    typer.Option("--resize", help="How a picture is fitted to the model's input size.", show_default="stretch"),
]
LayoutOption = Annotated[
    Layout | None, typer.Option("--layout", help="The layout of the picture input, if its shape does not show it.")
]
SamplingRateOption = Annotated[
    int | None,
    typer.Option(
        "--sampling-rate",
        metavar="HZ",
        help="The samples per second of the waveform that a model of sounds takes.",
        show_default="that of the folder",
    ),
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAME,…",
        help="The names of the features of a model of rows, so that tables are read by name.",
        show_default=False,
    ),
]
VariantOption = Annotated[
    str | None,
    typer.Option(
        "--variant",
        metavar="NAME",
        help="The variant of a published model, such as quantized or int8; --list shows them.",
        show_default="the best for the target",
    ),
]
ListOption = Annotated[
    bool, typer.Option("--list", help="List the variants in the folder of a published model, and push none.")
]
TaskOption = Annotated[
    Task | None,
    typer.Option("--task", help="The model's task.", show_default="that of the folder"),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        metavar="FILE",
        help="The tokenizer of a text model: a tokenizer.json.",
        show_default="that of the folder",
        exists=True,
        dir_okay=False,
    ),
]
PoolingOption = Annotated[
    str | None,
    typer.Option(
        "--pooling",
        metavar="mean|max|cls|last|mean-sqrt|weighted-mean",
        help="How the vectors of the tokens become one vector; cls+mean joins two.",
        show_default="that of the folder",
    ),
]
NormalizeOption = Annotated[
    bool | None,
    typer.Option(
        "--normalize/--no-normalize",
        help="Divide each embedding by its Euclidean norm.",
        show_default="that of the folder",
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        min=1,
        max=MAX_TOKENS,
        help="The maximum number of tokens; longer texts are truncated.",
        show_default="that of the folder",
    ),
]
RawOption = Annotated[
    bool, typer.Option("--raw", help="Show the stored integers of quantized outputs instead of real values.")
]


PlainHttpOption = Annotated[
    bool, typer.Option("--plain-http", help="Use HTTP instead of HTTPS, even for a registry on another machine.")
]


def joined_shapes(given: list[str] | None) -> str:
    """Returns the shapes of a repeated `--input-shape` in the form that `core.builds.options` parses."""
    return ";".join(given or [])


def joined_values(given: list[str] | None) -> str:
    """Returns the values of a repeated `--fix` in the form that `core.builds.fixed` parses."""
    return ";".join(given or [])


def configure_dialects(files: list[Path] | None) -> None:
    """Adds dialects to those that are configured. Raises `InvalidInput`."""
    if files:
        dialects.add(files)


def is_reference(given: str) -> bool:
    """Returns true if `given` is a reference to an OCI registry rather than a file."""
    return given.startswith("oci://")


def metadata_from(
    labels: Path | None,
    mean: str,
    std: str,
    resize: Resize | None,
    layout: Layout | None,
    task: Task | None = None,
    text: TextProcessing = NO_TEXT,
    sampling_rate: int | None = None,
    columns: str = "",
) -> ModelMetadata:
    """Returns the model metadata that the options specify. Raises `InvalidInput`."""
    return ModelMetadata(
        read_labels(labels) if labels else (),
        parse_numbers(mean),
        parse_numbers(std),
        resize,
        layout,
        task=task,
        text=text,
        sampling_rate=sampling_rate,
        columns=tuple(each.strip() for each in columns.split(",")) if columns else (),
    )


def read_labels(path: Path) -> tuple[str, ...]:
    """Returns the labels in a file: one per line, the first for class 0. Raises `InvalidInput` if it is not UTF-8."""
    try:
        return parse_labels(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text", hint="write one label per line, class 0 first") from error
