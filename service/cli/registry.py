"""Models in OCI registries: `octet push --to`, `octet pull oci://…`, and serving a model from a registry."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from service.core.digest import Digest, parse_digest
from service.core.errors import Conflict, CorruptBlob, InvalidInput, NotFound, NotReady, RegistryFailed
from service.core.provenance import signer_of
from service.core.settings import PlainHttp, Settings
from service.registry import Choose, Reference, Registry, parse_reference, pull, push

if TYPE_CHECKING:
    from service.cache import OciLayout
    from service.cli.client import Client


def with_plain_http(settings: Settings, plain_http: bool) -> Settings:
    return settings.model_copy(update={"registry_http": PlainHttp.ALWAYS}) if plain_http else settings


def push_folder(folder: Path, to: str, settings: Settings) -> Digest:
    """Pushes all artifacts in a folder. Returns the digest that the tag now refers to."""
    from service.cache import OciLayout

    layout = OciLayout.open(folder)
    return _push([(layout, digest) for digest in _artifacts_in(layout)], to, settings)


def push_served(client: Client, model: str, version: int | None, to: str, settings: Settings) -> Digest:
    """Pushes the artifacts of a version on the server, by default the newest. Returns the digest that the tag names."""
    from service.cache.metadata import attach_metadata
    from service.cli.artifacts import fetched
    from service.cli.published import version_description

    wanted, digests = _served_artifacts(client, model, version)
    described = version_description(client, model, wanted)
    with ExitStack() as stack:
        layouts = [stack.enter_context(fetched(client, each)) for each in digests]
        for layout, digest in zip(layouts, digests, strict=True):
            attach_metadata(layout, digest, described.metadata, described.tokenizer)
        return _push(list(zip(layouts, digests, strict=True)), to, settings)


def pull_to(reference: Reference, directory: Path, settings: Settings, choose: Choose | None = None) -> list[Digest]:
    """Pulls `reference` into a new folder, which is complete or absent. Returns the artifacts.

    An interrupted pull leaves what it received in `DIRECTORY.partial`, and the next pull continues from there. A pull
    that failed for another reason leaves nothing, because another attempt would fail too.

    Raises:
        Untrusted: no trusted key signed the artifact. The folder is not written.
        OctetError: as `service.registry.pull`.
    """
    from service.runtime.trust import Trust

    trust = Trust.of(settings)
    if directory.exists():
        raise Conflict(f"{directory} exists already", hint="name another folder, or remove it")
    partial = directory.with_name(f"{directory.name}.partial")
    try:
        layout = _partial_layout(partial)
        for listed in layout.index():
            layout.remove(listed.digest)
        with Registry(reference, settings) as registry:
            digests = pull(registry, layout, settings.max_upload_bytes, choose)
        for digest in digests:
            trust.check(layout, digest)
        layout.collect_garbage(min_age_s=0)
        partial.rename(directory)
    except RegistryFailed as error:
        if not _has_blobs(partial):
            shutil.rmtree(partial, ignore_errors=True)
        else:
            error.hint = f"pull again to continue from {partial}, or delete that folder"
        raise
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except BaseException:  # after Ctrl-C, the received blobs are kept, because the user may run the command again
        if not _has_blobs(partial):
            shutil.rmtree(partial, ignore_errors=True)
        raise
    return digests


def _partial_layout(folder: Path) -> OciLayout:
    """Opens the layout that an earlier pull left. Starts anew if it is damaged, for example by a power failure."""
    from service.cache import OciLayout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        return OciLayout(folder)
    except (CorruptBlob, InvalidInput):
        shutil.rmtree(folder)
        folder.mkdir()
        return OciLayout(folder)


def _has_blobs(layout: Path) -> bool:
    return any((layout / "blobs").rglob("sha256/*"))


def _push(artifacts: list[tuple[OciLayout, Digest]], to: str, settings: Settings) -> Digest:
    signer = signer_of(settings)
    with Registry(parse_reference(to), settings, writes=True) as registry:
        return push(registry, artifacts, signer)


def _artifacts_in(layout: OciLayout) -> list[Digest]:
    from service.core.artifacts.artifact import ARTIFACT_TYPE

    found = [entry.digest for entry in layout.index() if entry.artifact_type == ARTIFACT_TYPE]
    if not found:
        raise NotFound(f"{layout.root} contains no artifact", hint="octet compile FILE --output DIR writes one")
    return found


def _served_artifacts(client: Client, model: str, version: int | None) -> tuple[int, list[Digest]]:
    """Returns the version, and its newest artifact for each target, those with batch size 1."""
    numbers = [each["version"] for each in client.model(model)["versions"]]
    wanted = version or max(numbers, default=0)
    found: dict[str, str] = {}
    for build in client.builds(model, limit=200):  # newest first
        is_built = build["state"] == "succeeded" and build["artifact"] and not build["invalidated"]
        if build["version"] == wanted and is_built and build["options"].get("batch", 1) == 1:
            found.setdefault(build["target"], build["artifact"])
    if not found:
        raise NotReady(f"there is no artifact of version {wanted} of {model}", hint=f"octet models {model}")
    return wanted, [parse_digest(each) for each in dict.fromkeys(found.values())]
