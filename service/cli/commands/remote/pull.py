"""`octet pull`: downloads an artifact from a server or registry, as a folder like that of `octet compile`."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.completion import complete_model
from service.cli.configuration import load_checked
from service.cli.connection import connect
from service.cli.options import JsonOption, KeyOption, PlainHttpOption, ServerOption, is_reference
from service.cli.output import reporting
from service.cli.versions import resolve_model
from service.core.digest import Digest, parse_digest
from service.core.errors import Conflict, NotReady

if TYPE_CHECKING:
    from service.cli.client import Client
    from service.cli.published import Description


def pull(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL[:VERSION|@ALIAS]|oci://…",
            help="A model on the server, or a reference to an OCI registry.",
            autocompletion=complete_model,
        ),
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write; it must not exist yet.")],
    target: Annotated[
        str | None,
        typer.Option(
            "--target", help="The target of the artifact to download.", show_default="the one that the server serves"
        ),
    ] = None,
    plain_http: PlainHttpOption = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download the artifact of a model, as a folder for octet run."""
    if is_reference(model):
        _pull_from_registry(model, directory, target, plain_http, as_json)
        return
    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        if directory.exists():
            raise Conflict(f"{directory} exists already", hint="name another folder, or remove it")
        artifact, described = _artifact(client, name, version, target)
        _write(client, artifact, described, directory)
        if as_json:
            output.document({"artifact": artifact, "directory": str(directory)})
            return
        output.show(f"{artifact} in {directory}")
        output.next_command(f"octet run {shlex.quote(str(directory))} INPUT")


def _pull_from_registry(text: str, directory: Path, target: str | None, plain_http: bool, as_json: bool) -> None:
    from service.cli.registry import pull_to, with_plain_http
    from service.registry import parse_reference

    settings = with_plain_http(load_checked(), plain_http)
    with reporting(as_json) as output:
        artifacts = pull_to(parse_reference(text), directory, settings, (lambda _: target) if target else None)
        if as_json:
            output.document({"artifacts": artifacts, "directory": str(directory)})
            return
        output.show(*(f"{artifact} in {directory}" for artifact in artifacts))
        output.next_command(f"octet run {shlex.quote(str(directory))} INPUT")


def _artifact(client: Client, name: str, version: int | None, target: str | None) -> tuple[Digest, Description]:
    """Returns the artifact, and its version's metadata and tokenizer. Raises `NotReady` if there is none."""
    from service.cli.published import version_description

    versions = client.model(name)["versions"]
    wanted = [each for each in versions if version in (None, each["version"])]
    if target is None:
        found = next((each for each in wanted if each["artifact"]), None)
    else:
        numbers = [each["version"] for each in wanted]
        builds = [each for each in client.builds(name, limit=200) if _is_built(each, numbers, target)]
        found = max(builds, key=lambda build: build["version"], default=None)
    if found is None:
        what = name if version is None else f"version {version} of {name}"
        suited = f" for {target}" if target else ""
        raise NotReady(f"there is no artifact of {what}{suited}", hint=f"octet models {name}")
    return parse_digest(found["artifact"]), version_description(client, name, found["version"])


def _is_built(build: dict[str, Any], versions: list[int], target: str) -> bool:
    is_asked_for = build["version"] in versions and build["target"] == target and build["options"].get("batch", 1) == 1
    return is_asked_for and build["state"] == "succeeded" and not build["invalidated"]


def _write(client: Client, artifact: Digest, described: Description, directory: Path) -> None:
    """Writes a folder that is complete or absent, after checking each file's digest. Adds the version's metadata and
    tokenizer.
    """
    from service.cache import OciLayout
    from service.cache.metadata import attach_metadata
    from service.cli.artifacts import fetch

    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".octet-", dir=directory.parent) as beside:
        folder = Path(beside, "artifact")
        folder.mkdir()
        fetch(client, artifact, folder)
        layout = OciLayout.open(folder)
        manifest = layout.manifest(artifact)
        for part in (manifest.config, *manifest.layers):
            layout.blobs.path(part.digest)
        attach_metadata(layout, artifact, described.metadata, described.tokenizer)
        folder.rename(directory)
