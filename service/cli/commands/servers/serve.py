"""`octet serve` and `octet api`: the servers that clients connect to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.commands.servers import welcome
from service.cli.commands.servers.server_options import (
    GrpcPortOption,
    HostOption,
    InstancesOption,
    LogFormatOption,
    MaxBatchOption,
    MaxDelayOption,
    NoAuthOption,
    NoGrpcOption,
    PortOption,
    QueueSizeOption,
    ThreadsOption,
    TlsCertOption,
    TlsKeyOption,
    VerboseOption,
)
from service.cli.configuration import load_checked
from service.cli.options import DataDirOption, JsonOption, UnsandboxedBuildOption, is_reference
from service.cli.output import reporting
from service.core.errors import InvalidInput
from service.core.system.installed import require_server

if TYPE_CHECKING:
    from service.core.settings import Settings


def serve(
    host: HostOption = None,
    port: PortOption = None,
    grpc_port: GrpcPortOption = None,
    no_grpc: NoGrpcOption = False,
    data_dir: DataDirOption = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            metavar="DIR|FILE|oci://…",
            help="Models to serve: files, artifact folders, folders of either, or references to OCI registries. "
            "Changes of files are picked up; references are pulled at the start. Repeatable.",
        ),
    ] = None,
    no_auth: NoAuthOption = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    threads: ThreadsOption = None,
    instances: InstancesOption = None,
    queue_size: QueueSizeOption = None,
    max_batch: MaxBatchOption = None,
    max_delay_s: MaxDelayOption = None,
    plane_per_tenant: Annotated[
        bool, typer.Option("--plane-per-tenant", help="Run each tenant's models in a separate process.")
    ] = False,
    no_compile: Annotated[
        bool, typer.Option("--no-compile", help="Build nothing here; leave builds to octet compile-worker.")
    ] = False,
    allow_unsandboxed: UnsandboxedBuildOption = False,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Serve models: the API, predictions and, while builds are queued, a compile worker."""
    from service.core.cluster.settings import Role
    from service.core.settings import Auth

    flags: dict[str, Any] = {"host": host, "port": port, "grpc_port": grpc_port, "data_dir": data_dir}
    flags |= {"auth": Auth.OFF if no_auth else None, "tls_cert": tls_cert, "tls_key": tls_key}
    flags |= {"threads": threads, "instances": instances, "queue_size": queue_size}
    flags |= {"max_batch": max_batch, "max_delay_s": max_delay_s}
    switches = {"grpc": False if no_grpc else None, "allow_unsandboxed": allow_unsandboxed or None}
    switches |= {"plane_per_tenant": plane_per_tenant or None}
    settings = load_checked({**flags, **switches, "log_format": log_format, "role": Role.EMBEDDED})
    run(settings, verbose, as_json, compile=not no_compile, models=models or ())


def api(
    host: HostOption = None,
    port: PortOption = None,
    grpc_port: GrpcPortOption = None,
    no_grpc: NoGrpcOption = False,
    data_dir: DataDirOption = None,
    no_auth: NoAuthOption = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the API of a cluster: forwards predictions to the workers, loads no models and builds nothing."""
    from service.core.cluster.settings import Role
    from service.core.settings import Auth

    flags: dict[str, Any] = {"host": host, "port": port, "grpc_port": grpc_port, "data_dir": data_dir}
    flags |= {"auth": Auth.OFF if no_auth else None, "tls_cert": tls_cert, "tls_key": tls_key}
    flags |= {"grpc": False if no_grpc else None, "log_format": log_format}
    run(load_checked({**flags, "role": Role.API}), verbose, as_json)


def run(settings: Settings, verbose: bool, as_json: bool, *, compile: bool = False, models: Sequence[str] = ()) -> None:
    """Runs a supervised server in the role that `settings` specify, until a signal stops it.

    Args:
        models: files, folders and references to registries to serve, in place of the settings' model files.
    """
    welcome.log(settings, verbose)
    with reporting(as_json) as output:
        require_server()
        if models:
            files = tuple(_model_file(each, settings) for each in models)
            settings = settings.model_copy(update={"model_files": files})
        from service.api.ops import supervisor

        status = supervisor.serve(
            settings,
            compile=compile,
            on_started=lambda started: welcome.print_safely(lambda: welcome.server(output, started, settings)),
        )
    raise typer.Exit(status)


def _model_file(given: str, settings: Settings) -> Path:
    if is_reference(given):
        from service.cli.commands.servers.pulled import served_folder

        return served_folder(given, settings)
    if not Path(given).exists():
        raise InvalidInput(f"{given} does not exist", hint="--models takes files, folders, oci://HOST/REPOSITORY:TAG")
    return Path(given)
