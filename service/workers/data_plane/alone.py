"""Runs the data plane alone: it serves models from folders, without a control plane, a database or a compiler.

If the data plane uses a certificate or API keys, a second process (`updates`) reads their files again when these
change. Another process (`preprocess.starter`) starts the preprocessing process when the first picture, text, sound or
table arrives.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

from service.cache import OciLayout
from service.cache.metadata import metadata_of
from service.core.artifacts.artifact import ARTIFACT_TYPE, OPTIONS_ANNOTATION
from service.core.builds.options import batch_of
from service.core.cluster.certificate import certificate_of
from service.core.cluster.queueing import scheduling_of
from service.core.digest import Digest
from service.core.errors import Conflict, InvalidInput, NotFound
from service.core.models.metadata import ModelMetadata
from service.core.settings import Auth, Settings
from service.core.system.notify import ServiceManager
from service.core.target import parse_target
from service.runtime.stored import StoredArtifact
from service.runtime.trust import Trust
from service.workers.data_plane import loads, orders, program
from service.workers.data_plane.updates import Order, fork_updater
from service.workers.preprocess.starter import fork_starter

_BACKLOG = 2048


@dataclass(frozen=True)
class Source:
    """A model to serve.

    Attributes:
        folder: the output folder of `octet compile`.
    """

    name: str
    folder: Path


def source_of(text: str) -> Source:
    """Parses `NAME=DIR`, or `DIR` for a model with the folder's name. Raises `InvalidInput` if DIR is not a folder."""
    name, separator, folder = text.partition("=")
    path = Path(folder if separator else text)
    if not path.is_dir():
        raise InvalidInput(f"{path} is not a folder", hint="octet compile FILE --output DIR writes one")
    return Source(name if separator else path.resolve().name, path)


def serve(
    sources: Sequence[Source],
    settings: Settings,
    on_bound: Callable[[int, int | None], None],
    keys: Callable[[], orders.Members] | None = None,
    target: str | None = None,
) -> NoReturn:
    """Replaces this process by the data plane, which serves until SIGTERM or SIGINT arrives.

    Args:
        on_bound: called with the ports, which already accept connections.
        keys: returns the order with the current API keys. None if requests need no key.
        target: the target to serve, if folders contain a model for several targets. None if each folder has one target.

    Raises:
        Conflict: a port is already in use.
        InvalidInput: other machines can reach the address, but no key is required; or two models have the same name; or
            the certificate's files are not valid.
        Untrusted: none of the trusted keys signed a model.
        OctetError: a model cannot run on this machine.
    """
    if keys is None and settings.auth is not Auth.OFF and not ip_address(settings.host).is_loopback:
        raise InvalidInput(
            f"other machines can reach {settings.host}, but requests need no API key",
            hint="listen on 127.0.0.1, pass a file of keys with --keys, or set OCTET_AUTH=off",
        )
    if len({source.name for source in sources}) < len(sources):
        raise InvalidInput("two models have the same name", hint="name them: NAME=DIR")
    certificate = certificate_of(settings)
    if certificate is not None:
        program.require_tls()

    def current_orders() -> list[Order]:
        messages: list[Order] = [
            (keys() if keys else orders.keys(is_required=False, cluster_key=settings.key_of_cluster), b"")
        ]
        if certificate is not None:
            pair = certificate.pair()
            messages.append(orders.certificate(pair.cert_pem, pair.key_pem))
        return messages

    first, inherited = current_orders(), dict[str, int]()
    if keys or certificate:
        # forked before the ports are opened, because the child would keep them open
        channel = fork_updater(current_orders, first)
        channel.setblocking(False)
        inherited["updates"] = channel.detach()
    preprocess = _link()
    inherited["preprocess"] = preprocess.fileno()
    inherited["held"] = fork_starter(preprocess.getsockname(), [preprocess], settings.watchdog_s)
    listeners = {"http": _listen(settings.host, settings.port)}
    if settings.grpc:
        listeners["grpc"] = _listen(settings.host, settings.port_of_grpc)
    program.raise_descriptors()
    messages = [(orders.configure(settings), b""), *first]
    named: list[orders.Named] = []
    trust = Trust.of(settings)
    uses_gpus = False
    for key, source in enumerate(sources, 1):
        order, metadata, tokenizer = _load(key, source, settings, target, trust)
        uses_gpus |= parse_target(order["target"]).device == "cuda"
        messages.append((order, b""))
        description = orders.describe(metadata, tokenizer)
        if tokenizer is not None:  # the data plane cannot open it
            description["inherited"] = inherited[f"tokenizer{key}"] = os.open(tokenizer, os.O_RDONLY | os.O_CLOEXEC)
        messages.append(({**description, "key": key}, b""))
        named += [orders.Named(source.name, version, key, ["1"]) for version in ("", "1")]
    messages.append((orders.routes(named), b""))
    grpc = listeners.get("grpc")
    on_bound(listeners["http"].getsockname()[1], grpc.getsockname()[1] if grpc else None)
    systemd = ServiceManager()
    systemd.ready()
    if (notify := systemd.connected()) is not None:
        inherited["notify"] = notify.detach()
    inherited |= {name: listener.fileno() for name, listener in listeners.items()}
    folders = [source.folder for source in sources]
    program.become(inherited, folders, program.writable(settings), messages, uses_gpus=uses_gpus)


def _load(
    key: int, source: Source, settings: Settings, target: str | None, trust: Trust
) -> tuple[orders.Members, ModelMetadata, Path | None]:
    """Returns the order to load a model, the model's metadata, and the file of its tokenizer, if it has one."""
    layout = OciLayout.open(source.folder)
    digests = [entry.digest for entry in layout.index() if entry.artifact_type == ARTIFACT_TYPE]
    artifacts = [(_batch(layout, digest), StoredArtifact.read(layout, digest, trust)) for digest in digests]
    if target is not None:
        artifacts = [(batch, artifact) for batch, artifact in artifacts if artifact.config.target == target]
    if not artifacts:
        for_it = f" for {target}" if target else ""
        raise NotFound(
            f"{source.folder} contains no artifact{for_it}", hint="octet compile FILE --output DIR writes one"
        )
    targets = sorted({artifact.config.target for _, artifact in artifacts})
    if len(targets) > 1:
        raise InvalidInput(
            f"{source.folder} contains artifacts for {' and '.join(targets)}", hint="choose one with --target"
        )
    for _, artifact in artifacts:
        artifact.check()
    if all(batch > 1 for batch, _ in artifacts):  # the batch is part of the model file, so a request is one whole batch
        artifacts = [(1, artifact) for _, artifact in artifacts]
    scheduling = scheduling_of(settings.serving(source.name))
    try:
        order, _ = loads.load(source.name, "1", artifacts, scheduling)
    except ValueError as error:
        raise InvalidInput(
            f"the folder's {len(artifacts)} artifacts are not variants of one model",
            hint="compile each into a folder of its own",
        ) from error
    metadata = metadata_of(layout, artifacts[0][1].digest)
    tokenizer = metadata.text.tokenizer
    return {**order, "key": key}, metadata, layout.blobs.path(tokenizer) if tokenizer else None


def _batch(layout: OciLayout, digest: Digest) -> int:
    return batch_of(json.loads(layout.manifest(digest).annotations.get(OPTIONS_ANNOTATION, "{}")))


def _link() -> socket.socket:
    """Returns a socket on which the data plane accepts the preprocessing process. The kernel chooses its name, in the
    abstract namespace, and the data plane checks which user connects.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")
    listener.listen()
    listener.setblocking(False)
    return listener


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server((host, port), family=_family(host), backlog=_BACKLOG)
    except OSError as error:
        raise Conflict(f"cannot listen on port {port} of {host}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
