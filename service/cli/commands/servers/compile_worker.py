"""`octet compile-worker`: runs queued builds."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.commands.servers import welcome
from service.cli.commands.servers.server_options import LogFormatOption, VerboseOption
from service.cli.configuration import load_checked
from service.cli.options import DataDirOption, JsonOption, UnsandboxedBuildOption
from service.cli.output import reporting


def compile_worker(
    targets: Annotated[
        str | None,
        typer.Option("--targets", metavar="TARGET,…", help="Build only for these targets.", show_default="all targets"),
    ] = None,
    data_dir: DataDirOption = None,
    allow_unsandboxed: UnsandboxedBuildOption = False,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run queued builds of all servers that use the same database or data folder."""
    flags = {"data_dir": data_dir, "build_targets": targets, "log_format": log_format}
    settings = load_checked({**flags, "allow_unsandboxed": allow_unsandboxed or None})
    welcome.log(settings, verbose)
    with reporting(as_json) as output:
        from service.core.system.notify import ServiceManager
        from service.workers.compile_worker import run_until_signaled

        run_until_signaled(
            settings,
            on_started=lambda name: welcome.print_safely(lambda: welcome.compile_worker(output, name, settings)),
            systemd=ServiceManager(),
        )
