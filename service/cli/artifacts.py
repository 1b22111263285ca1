"""The artifact that a command measures: in a folder, or of a server's model, of which a copy is made."""

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
from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput, NotReady

if TYPE_CHECKING:
    from service.cache import OciLayout

_BUILT = ("succeeded", "different")  # with an artifact, which can be measured also if it is not served
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_MEMBERS = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")


def folder_of(given: str) -> Path | None:
    """The folder that `given` is; None where it is the name of a model.

    Raises:
        typer.BadParameter: it is neither.
    """
    if Path(given).is_dir():
        return Path(given)
    if not _NAME.fullmatch(given):
        raise typer.BadParameter(f"{given!r} is not a folder, and not a valid model name")
    return None


def artifact_of(client: Client, model: str) -> Digest:
    """The artifact of the newest build of `model` that runs here; if none does, the newest.

    Raises:
        NotFound: there is no such model.
        NotReady: nothing has been built of it.
    """
    from service.core.target import detect_host, parse_target

    client.model(model)
    builds = [build for build in client.builds(model, limit=200) if build["state"] in _BUILT and build["artifact"]]
    if not builds:
        raise NotReady(f"model {model!r} has not been built", hint=f"octet builds --model {model}")
    host = detect_host()
    return parse_digest(min(builds, key=lambda build: not parse_target(build["target"]).runs_on(host))["artifact"])


@contextmanager
def fetched(client: Client, artifact: Digest) -> Iterator[OciLayout]:
    """A copy of the artifact and what is attached to it, as long as it is needed. Its files are verified when read.

    Raises:
        InvalidInput: the server sent something else.
    """
    from service.cache import OciLayout

    with tempfile.TemporaryDirectory(prefix="octet-") as folder:
        fetch(client, artifact, Path(folder))
        yield OciLayout.open(Path(folder))


def fetch(client: Client, artifact: Digest, folder: Path) -> None:
    """Writes the artifact and what is attached to it to an empty folder, as an OCI image layout.

    Raises:
        InvalidInput: the server sent something else.
    """
    archive = folder / "artifact.tar"
    client.download(artifact, archive)
    try:
        with tarfile.open(archive) as members:
            for member in members:
                _unpack(members, member, folder)
    except tarfile.TarError as error:
        raise InvalidInput(f"artifact {artifact}is damaged: {error}") from error
    archive.unlink()


def _unpack(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    content: Any = members.extractfile(member) if member.isfile() and _MEMBERS.fullmatch(member.name) else None
    if content is None:
        raise InvalidInput(f"an artifact's archive holds {member.name!r}")
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while chunk := content.read(1 << 20):
            file.write(chunk)
