"""The artifact that a command measures: in a folder, or a temporary copy of one on a server."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from service.cli.client import Client
from service.cli.output import Output
from service.cli.versions import FORM, ModelVersion, resolve_model
from service.core.digest import Digest, parse_digest
from service.core.errors import Forbidden, InvalidInput, NotReady

if TYPE_CHECKING:
    from service.cache import OciLayout

_BUILT = ("succeeded", "different")  # both have an artifact that can be measured, even if "different" is not served
_MEMBERS = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")


def folder_of(given: str) -> Path | None:
    """Returns the folder at `given`, or None if `given` is the name of a model.

    Raises:
        typer.BadParameter: it is neither a folder nor a valid name.
    """
    if Path(given).is_dir():
        return Path(given)
    try:
        ModelVersion.parse(given)
    except InvalidInput as error:
        raise typer.BadParameter(f"{given!r} is neither a folder nor a model: DIR or {FORM}") from error
    return None


def artifact_of(client: Client, model: str) -> Digest:
    """Returns the artifact of the newest build of `model` that runs here; if none does, the newest artifact.

    Args:
        model: `NAME`, `NAME:VERSION` or `NAME@ALIAS`.

    Raises:
        NotFound: the model or the alias does not exist.
        NotReady: the model has no artifact yet.
    """
    from service.core.target import detect_host, parse_target

    name, version = resolve_model(client, model)
    client.model(name)
    builds = [
        build
        for build in client.builds(name, limit=200)
        if build["state"] in _BUILT and build["artifact"] and version in (None, build["version"])
    ]
    if not builds:
        raise NotReady(f"model {model!r} has not been built", hint=f"octet builds --model {model}")
    host = detect_host()
    return parse_digest(min(builds, key=lambda build: not parse_target(build["target"]).runs_on(host))["artifact"])


@contextmanager
def fetched(client: Client, artifact: Digest) -> Iterator[OciLayout]:
    """Downloads the artifact and its reports into a temporary folder for the context's duration. Reads verify digests.

    Raises:
        InvalidInput: the server sent something other than an artifact.
    """
    from service.cache import OciLayout

    with tempfile.TemporaryDirectory(prefix="octet-") as folder:
        fetch(client, artifact, Path(folder))
        yield OciLayout.open(Path(folder))


def fetch(client: Client, artifact: Digest, folder: Path) -> None:
    """Writes the artifact and its reports to an empty folder, as an OCI image layout.

    Raises:
        InvalidInput: the server sent something other than an artifact.
    """
    archive = folder / "artifact.tar"
    client.download(artifact, archive)
    try:
        with tarfile.open(archive) as members:
            for member in members:
                _unpack(members, member, folder)
    except tarfile.TarError as error:
        raise InvalidInput(f"artifact {artifact} is damaged: {error}") from error
    archive.unlink()


def _unpack(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    content: Any = members.extractfile(member) if member.isfile() and _MEMBERS.fullmatch(member.name) else None
    if content is None:
        raise InvalidInput(f"the downloaded archive contains an unexpected member: {member.name!r}")
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while chunk := content.read(1 << 20):
            file.write(chunk)


def send_score(client: Client, folder: Path, artifact: str | None, output: Output) -> None:
    """Sends the score in a folder, if it has one and the build has ended. A refused score does not fail the push."""
    from service.cache import OciLayout
    from service.core.artifacts.artifact import Report

    document = None if artifact is None else OciLayout.open(folder).attached(Digest(artifact), Report.SCORE)
    if artifact is None or document is None:
        return
    try:
        client.put_score(artifact, document)
    except (Forbidden, InvalidInput) as error:
        output.note(f"the server does not accept the score in {folder}: {error.message}")
