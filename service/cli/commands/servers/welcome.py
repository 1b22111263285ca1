"""Prints what a long-running command shows when it has started."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from service.cli.configuration import load_checked, local_url
from service.cli.output import Output
from service.core.system import logs

if TYPE_CHECKING:
    from service.api.ops.supervisor import Started
    from service.compiler.sandbox import Finding
    from service.core.settings import Settings
    from service.core.target import Host
    from service.workers.data_plane.alone import Source

_logger = logging.getLogger(__name__)


def print_safely(welcome: Callable[[], None]) -> None:
    """Prints a welcome message. A full disk, or a pipe without a reader, does not stop the server."""
    try:
        welcome()
        sys.stdout.flush()
    except OSError as error:
        _logger.warning("started; the standard output cannot be written: %s", error)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)  # else, flushing the rest of the buffer would fail again at exit
        os.close(nothing)


def server(output: Output, started: Started, settings: Settings) -> None:
    tls, machine = settings.tls_cert is not None, started.machine
    url = local_url(started.host, started.port, tls)
    grpc = local_url(started.host, started.grpc_port).removeprefix("http://") if started.grpc_port else None
    if output.as_json:
        output.document(
            {
                "url": url,
                "grpc": grpc,
                "target": machine.best.name if machine.best else None,
                "missing": sorted(machine.missing),
                "data_dir": str(settings.data_dir),
                "pid": os.getpid(),
            }
        )
        return
    output.show(f"[bold]{url}[/bold]")
    if grpc:
        output.show(f"  gRPC     {grpc}")
    output.show(f"  host     {_host(machine)}", f"  data     {settings.data_dir}")
    output.show(f"  sandbox  {_sandbox(started.sandbox, settings)}")
    is_default = url == local_url(load_checked().host, load_checked().port)
    output.next_command(_next(started) + ("" if is_default else f" --server {shlex.quote(url)}"))


def compile_worker(output: Output, name: str, settings: Settings) -> None:
    from service.compiler.sandbox import check

    if output.as_json:
        output.document({"worker": name, "data_dir": str(settings.data_dir), "pid": os.getpid()})
        return
    output.show(f"[bold]{name}[/bold]", f"  data     {settings.data_dir}", f"  sandbox  {_sandbox(check(), settings)}")


def alone(output: Output, sources: Sequence[Source], settings: Settings, port: int, grpc_port: int | None) -> None:
    url = local_url(settings.host, port, settings.tls_cert is not None)
    grpc = local_url(settings.host, grpc_port).removeprefix("http://") if grpc_port else None
    if output.as_json:
        output.document({"url": url, "grpc": grpc, "models": [each.name for each in sources], "pid": os.getpid()})
        return
    output.show(f"[bold]{url}[/bold]")
    if grpc:
        output.show(f"  gRPC     {grpc}")
    output.show(f"  models   {', '.join(each.name for each in sources)}")


def _host(machine: Host) -> str:
    if machine.best is not None:
        return f"{machine.best.reason} → {machine.best.name}"
    return f"[bold yellow]{machine.why_none}[/bold yellow]; this machine cannot run predictions, see octet doctor"


def _next(started: Started) -> str:
    if not started.sandbox:
        return "octet predict MODEL INPUT" if started.machine.best else "octet doctor"
    return "octet push FILE" if started.machine.best else "octet push FILE --target TARGET"


def _sandbox(findings: Sequence[Finding], settings: Settings) -> str:
    if not findings:
        return "nothing is compiled here"
    missing = [finding.name for finding in findings if not finding.available]
    if not missing:
        return ", ".join(f"{finding.name} ({finding.detail})" for finding in findings)
    consequence = "builds run without it" if settings.allow_unsandboxed else "builds are refused"
    return f"[bold yellow]this kernel has no {' and no '.join(missing)}: {consequence}[/bold yellow]; see octet doctor"


def log(settings: Settings, verbose: bool) -> None:
    logs.configure(settings.log_format, logging.INFO if verbose else logging.WARNING)
