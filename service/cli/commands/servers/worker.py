"""`octet worker`: a cluster member that runs predictions; and `octet worker serve`, the data plane alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.commands.servers import welcome
from service.cli.commands.servers.serve import run
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
from service.cli.options import DataDirOption, JsonOption, is_reference
from service.cli.output import reporting
from service.core.errors import InvalidInput

if TYPE_CHECKING:
    from service.core.settings import Settings
    from service.workers.data_plane.alone import Source
    from service.workers.data_plane.orders import Members

worker = typer.Typer(invoke_without_command=True)


@worker.callback()
def member(
    context: typer.Context,
    pool: Annotated[
        str | None,
        typer.Option(
            "--pool",
            help="The pool that this worker joins: workers that run the same artifacts.",
            show_default="the target",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="The target whose artifacts to serve.", show_default="the best that runs here"),
    ] = None,
    host: HostOption = None,
    port: PortOption = None,
    grpc_port: GrpcPortOption = None,
    no_grpc: NoGrpcOption = False,
    data_dir: DataDirOption = None,
    no_auth: NoAuthOption = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    threads: ThreadsOption = None,
    instances: InstancesOption = None,
    queue_size: QueueSizeOption = None,
    max_batch: MaxBatchOption = None,
    max_delay_s: MaxDelayOption = None,
    log_format: LogFormatOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run predictions for a cluster, with the artifacts of one target; octet api forwards requests to it."""
    from service.core.cluster.settings import Role
    from service.core.settings import Auth

    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    flags: dict[str, Any] = {"pool": pool, "target": target, "host": host, "port": port, "grpc_port": grpc_port}
    flags |= {"data_dir": data_dir, "threads": threads, "instances": instances, "queue_size": queue_size}
    flags |= {"max_batch": max_batch, "max_delay_s": max_delay_s, "log_format": log_format}
    flags |= {"grpc": False if no_grpc else None, "auth": Auth.OFF if no_auth else None}
    flags |= {"tls_cert": tls_cert, "tls_key": tls_key}
    run(load_checked({**flags, "role": Role.WORKER}), verbose, as_json)


def _refuse_options(context: typer.Context) -> None:
    """Rejects options between `worker` and its subcommand, which would have no effect."""
    sources = [context.get_parameter_source(name) for name in context.params]
    if any(source is not None and source.name == "COMMANDLINE" for source in sources):
        raise typer.BadParameter(f"options of worker {context.invoked_subcommand} must follow its name")


@worker.command("serve")
def serve_alone(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]DIR|oci://...",
            help="Folders that octet compile wrote, or references to OCI registries, each with an optional name.",
        ),
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
        Path | None,
        typer.Option("--keys", metavar="FILE", help="Require an API key from this file, which octet keys wrote."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="TARGET", help="The target to serve, if a folder has artifacts for several."),
    ] = None,
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="Let clients on this machine pass tensors in /dev/shm.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve compiled models with the data plane alone: no API and no database."""
    flags: dict[str, Any] = {"host": host, "port": port, "grpc_port": grpc_port, "threads": threads}
    flags |= {"instances": instances, "queue_size": queue_size, "grpc": False if no_grpc else None}
    flags |= {"tls_cert": tls_cert, "tls_key": tls_key, "keys_file": keys}
    settings = load_checked(flags | {"shared_memory": shared_memory or None})
    with reporting(as_json) as output:
        from service.core.target import parse_target
        from service.workers.data_plane import alone

        sources = [_source(text, settings, target) for text in models]
        alone.serve(
            sources,
            settings,
            lambda *ports: welcome.print_safely(lambda: welcome.alone(output, sources, settings, *ports)),
            _keys_of(settings),
            None if target is None else parse_target(target).name,
        )


def _source(text: str, settings: Settings, target: str | None) -> Source:
    from service.workers.data_plane import alone

    name, separator, given = ("", "", text) if is_reference(text) else text.partition("=")
    if not is_reference(given):
        return alone.source_of(text)
    from service.cli.commands.servers.pulled import served_folder

    folder = served_folder(given, settings, target)
    return alone.Source(name if separator else folder.name, folder.resolve())


def _keys_of(settings: Settings) -> Callable[[], Members] | None:
    """Returns a function that builds the data plane's message with the API keys; None if no key is required."""
    from service.core.settings import Auth

    if settings.auth is Auth.OFF or (settings.keys_file is None and settings.admin_key is None):
        return None
    from service.api.access import Access
    from service.workers.data_plane import orders

    access = Access(settings.model_copy(update={"auth": Auth.ON}))
    if not access.keys_with_use():
        raise InvalidInput(f"{settings.file_of_keys} contains no API key", hint="octet keys create NAME creates one")
    return lambda: orders.keys(access.requires_key_now(), access.keys_with_use(), settings.key_of_cluster)
