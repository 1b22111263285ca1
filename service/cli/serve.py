"""`octet serve` and `octet worker`: the processes that stay."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import DataDirOption, JsonOption, load_checked, local_url
from service.cli.output import Output, reporting
from service.core import logs
from service.core.errors import InvalidInput
from service.core.installed import require_server
from service.core.logs import LogFormat
from service.core.settings import Auth, Settings

if TYPE_CHECKING:
    from service.api.ops.supervisor import Started
    from service.compiler.sandbox import Finding
    from service.core.target import Host
    from service.workers.data_plane.alone import Source
    from service.workers.data_plane.orders import Members

_logger = logging.getLogger(__name__)

worker = typer.Typer(help="Run one part of octet serve as a separate process.", no_args_is_help=True)

HostOption = Annotated[str | None, typer.Option("--host", help="The address to listen on.")]
PortOption = Annotated[int | None, typer.Option("--port", help="The port for HTTP; 0 takes a free one.")]
GrpcPortOption = Annotated[
    int | None,
    typer.Option("--grpc-port", help="The port for gRPC; 0 takes a free one.", show_default="the one after --port"),
]
TlsCertOption = Annotated[
    Path | None, typer.Option("--tls-cert", help="A PEM file of certificates, for HTTPS and gRPC over TLS.")
]
TlsKeyOption = Annotated[Path | None, typer.Option("--tls-key", help="A PEM file with the certificate's private key.")]
NoGrpcOption = Annotated[bool, typer.Option("--no-grpc", help="Answer over HTTP only.")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="Threads per prediction; 0: one for each core.")]
QueueSizeOption = Annotated[int | None, typer.Option("--queue-size", help="How many requests may wait for a model.")]
InstancesOption = Annotated[
    int | None,
    typer.Option("--instances", help="Concurrent predictions per model; 0: one for each core, up to 8."),
]
UnsandboxedOption = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Build even if this kernel cannot sandbox the compiler.")
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", help="The log's format; json writes one object per line.", show_default="text"),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log normal operation, not only problems.")]


def serve(
    host: HostOption = None,
    port: PortOption = None,
    grpc_port: GrpcPortOption = None,
    no_grpc: NoGrpcOption = False,
    data_dir: DataDirOption = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(
            "--models",
            metavar="DIR|FILE",
            exists=True,
            help="Models to serve: files, artifact folders, or folders of them; changes are picked up. Repeatable.",
        ),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Require no API key, even if others can reach the address.")
    ] = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    threads: ThreadsOption = None,
    instances: InstancesOption = None,
    queue_size: QueueSizeOption = None,
    max_batch: Annotated[
        int | None,
        typer.Option("--max-batch", help="Most samples to combine in one call; 0: the largest size built."),
    ] = None,
    max_delay_s: Annotated[
        float | None, typer.Option("--max-delay-s", help="How long a call waits for more requests to combine.")
    ] = None,
    no_compile: Annotated[
        bool, typer.Option("--no-compile", help="Build nothing; an octet worker compile on the same folder does.")
    ] = False,
    allow_unsandboxed: UnsandboxedOption = False,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Serve models: the API, predictions and, while there is something to build, a compile worker."""
    flags: dict[str, Any] = {"host": host, "port": port, "grpc_port": grpc_port, "data_dir": data_dir}
    flags |= {"model_files": models or None}
    flags |= {"auth": Auth.OFF if no_auth else None, "tls_cert": tls_cert, "tls_key": tls_key}
    flags |= {"threads": threads, "instances": instances, "queue_size": queue_size}
    flags |= {"max_batch": max_batch, "max_delay_s": max_delay_s}
    switches = {"grpc": False if no_grpc else None, "allow_unsandboxed": allow_unsandboxed or None}
    settings = load_checked({**flags, **switches, "log_format": log_format})
    _log(settings, verbose)
    with reporting(as_json) as output:
        require_server()
        from service.api.ops import supervisor

        status = supervisor.serve(
            settings,
            compile=not no_compile,
            on_started=lambda started: _tell(lambda: _welcome(output, started, settings)),
        )
    raise typer.Exit(status)


@worker.command("serve")
def serve_alone(
    models: Annotated[
        list[str], typer.Argument(metavar="[NAME=]DIR...", help="Folders that octet compile wrote, and their names.")
    ],
    host: HostOption = None,
    port: PortOption = None,
    grpc_port: GrpcPortOption = None,
    no_grpc: NoGrpcOption = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    threads: ThreadsOption = None,
    instances: InstancesOption = None,
    queue_size: QueueSizeOption = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="Require API keys: those that octet keys wrote.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="TARGET", help="Of folders with artifacts for several targets, those to serve."
        ),
    ] = None,
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="Let clients on this machine pass tensors in /dev/shm.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve compiled models with the data plane alone: no API, no database, no Python."""
    flags: dict[str, Any] = {"host": host, "port": port, "grpc_port": grpc_port, "threads": threads}
    flags |= {"instances": instances, "queue_size": queue_size, "grpc": False if no_grpc else None}
    flags |= {"tls_cert": tls_cert, "tls_key": tls_key, "keys_file": keys}
    settings = load_checked(flags | {"shared_memory": shared_memory or None})
    with reporting(as_json) as output:
        from service.core.target import parse_target
        from service.workers.data_plane import alone

        sources = [alone.source_of(text) for text in models]
        alone.serve(
            sources,
            settings,
            lambda *ports: _tell(lambda: _welcome_alone(output, sources, settings, *ports)),
            _keys_of(settings),
            None if target is None else parse_target(target).name,
        )


@worker.command("compile")
def compile_worker(
    data_dir: DataDirOption = None,
    allow_unsandboxed: UnsandboxedOption = False,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the builds that the server on the same folder has queued."""
    settings = load_checked(
        {"data_dir": data_dir, "allow_unsandboxed": allow_unsandboxed or None, "log_format": log_format}
    )
    _log(settings, verbose)
    with reporting(as_json) as output:
        from service.workers.compile_worker import run_until_signaled

        run_until_signaled(settings, on_started=lambda name: _tell(lambda: _welcome_worker(output, name, settings)))


def _keys_of(settings: Settings) -> Callable[[], Members] | None:
    """The order that says which keys there are; None where no file of them is named, and they are asked for nowhere."""
    if settings.auth is Auth.OFF or (settings.keys_file is None and settings.admin_key is None):
        return None
    from service.api.access import Access
    from service.workers.data_plane import orders

    access = Access(settings.model_copy(update={"auth": Auth.ON}))
    if not access.known():
        raise InvalidInput(f"{settings.file_of_keys} holds no API key", hint="octet keys create makes one")
    return lambda: orders.keys(access.look(), access.known())


def _tell(welcome: Callable[[], None]) -> None:
    """A full disk, or a pipe without a reader, is no reason to stop."""
    try:
        welcome()
        sys.stdout.flush()
    except OSError as error:
        _logger.warning("started; the standard output cannot be written: %s", error)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)  # or what is left in its buffer fails again at the end
        os.close(nothing)


def _welcome(output: Output, started: Started, settings: Settings) -> None:
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


def _welcome_worker(output: Output, name: str, settings: Settings) -> None:
    from service.compiler.sandbox import check

    if output.as_json:
        output.document({"worker": name, "data_dir": str(settings.data_dir), "pid": os.getpid()})
        return
    output.show(f"[bold]{name}[/bold]", f"  data     {settings.data_dir}", f"  sandbox  {_sandbox(check(), settings)}")


def _welcome_alone(
    output: Output, sources: Sequence[Source], settings: Settings, port: int, grpc_port: int | None
) -> None:
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
    return f"[bold yellow]{machine.why_none}[/bold yellow]; predictions are not answered here, see octet doctor"


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


def _log(settings: Settings, verbose: bool) -> None:
    logs.configure(settings.log_format, logging.INFO if verbose else logging.WARNING)
