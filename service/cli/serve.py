"""`octet serve`: everything in one process tree."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.options import DataDirOption, JsonOption, load_checked
from service.cli.output import reporting


def serve(
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="0 takes a free one.")] = None,
    data_dir: DataDirOption = None,
    threads: Annotated[int | None, typer.Option("--threads", help="For each prediction; 0: all cores.")] = None,
    allow_unsandboxed: Annotated[
        bool | None,
        typer.Option("--allow-unsandboxed", help="Build even where the compiler cannot be locked in."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve models: the API, a compile worker and an inference worker."""
    flags = {"host": host, "port": port, "data_dir": data_dir, "threads": threads}
    settings = load_checked({**flags, "allow_unsandboxed": allow_unsandboxed})
    with reporting(as_json) as output:
        from service.api.server import serve as serve_until_told_to_stop

        serve_until_told_to_stop(settings)
