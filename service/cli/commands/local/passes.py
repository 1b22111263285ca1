"""`octet explain --passes`: writes the model after each pass of the compiler, as text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from service.cli.configuration import load_checked
from service.cli.output import Output
from service.core.errors import InvalidInput

PassesOption = Annotated[
    Path | None,
    typer.Option(
        "--passes",
        metavar="DIR",
        file_okay=False,
        help="MODEL is a model file: write its text after each compiler pass into DIR, for --target and --numerics. "
        "octet compile reads the files *.qnn.",
    ),
]


def show_passes(output: Output, file: Path, directory: Path, target: str, numerics: str | None, as_json: bool) -> None:
    """Writes numbered text files into `directory`, and lists them.

    Raises:
        InvalidInput: `file` does not exist, or the folder is not empty.
    """
    from service.compiler.build.dialects import add_formats
    from service.compiler.build.inspection import write_passes
    from service.compiler.importers.detect import format_of
    from service.compiler.importers.uploads import upload_of
    from service.core.builds.numerics import DEFAULT_MODE, parse_mode
    from service.core.target import parse_target

    if not file.is_file():
        raise InvalidInput(f"{file} is not a file", hint="--passes takes a model file, not a name or a folder")
    if directory.exists() and any(directory.iterdir()):
        raise InvalidInput(f"{directory} is not empty", hint="choose another folder")
    settings = load_checked({})
    add_formats(settings)
    with file.open("rb") as source:
        mode = parse_mode(numerics) if numerics else DEFAULT_MODE[format_of(source)]
    with upload_of(file) as upload, tempfile.TemporaryDirectory() as within:
        pipeline, names = write_passes(upload, directory, Path(within), settings, parse_target(target), mode)
    if as_json:
        output.document({"pipeline": pipeline, "directory": str(directory), "files": names})
    else:
        output.show(pipeline, *(str(directory / name) for name in names))
