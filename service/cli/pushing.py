"""Uploads a model file or an artifact to a server, and follows the build of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from service.cli.client import Client
from service.cli.following import BUILT, follow
from service.cli.output import Output
from service.cli.published import UNDESCRIBED, Description, version_of
from service.cli.reports import attached
from service.core.errors import OctetError
from service.core.target import ALL

# A function that uploads a file. It calls its argument with the number of bytes of each chunk that was sent.
Send = Callable[[Callable[[int], None]], dict[str, Any]]


def push_model(
    client: Client,
    file: Path,
    name: str,
    target: str,
    numerics: str | None,
    output: Output,
    options: Mapping[str, str] | None = None,
    detach: bool = False,
    described: Description = UNDESCRIBED,
    on_uploaded: Callable[[dict[str, Any]], None] = lambda build: None,
) -> dict[str, Any]:
    """Pushes a model, follows the build to its end, and returns `{build, reports, cached, seconds}`.

    Args:
        on_uploaded: called with the response to the upload, which may be changed.

    Raises:
        OctetError: the server refused the file, or the build failed with this error.
    """

    def send(on_sent: Callable[[int], None]) -> dict[str, Any]:
        return client.push(file, name, target, numerics, on_sent, options)

    return _push_and_follow(client, file, name, send, output, detach, described, on_uploaded)


def push_artifact(
    client: Client,
    archive: Path,
    name: str,
    output: Output,
    detach: bool = False,
    described: Description = UNDESCRIBED,
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Pushes an archive of an artifact, like `push_model`. The build of an archive verifies the artifact instead of
    compiling.
    """

    def send(on_sent: Callable[[int], None]) -> dict[str, Any]:
        return client.push_artifact(archive, name, on_sent, options)

    return _push_and_follow(client, archive, name, send, output, detach, described)


def follow_other_targets(
    client: Client, name: str, first: dict[str, Any], options: dict[str, Any], output: Output, detach: bool
) -> list[dict[str, Any]]:
    """Follows the other builds of a push for all targets. Returns one result of `push_model`'s form for each.

    A failed build is not raised; its document contains the error.

    Args:
        options: the options that the builds have in common, in the API's form.
    """
    started_s = time.monotonic()
    requested = client.request_builds(name, version_of(first, name), [ALL], options)
    found: list[dict[str, Any]] = []
    for build in {each["target"]: each for each in reversed(requested)}.values():
        if build["id"] == first["id"]:
            continue
        cached = build["state"] in BUILT
        if not (cached or detach):
            with suppress(OctetError):  # the build's document contains the error too
                follow(client, build, output)
            build = client.build(build["id"])
        reports = attached(client, build["artifact"]) if build["artifact"] else {}
        found.append({"build": build, "reports": reports, "cached": cached, "seconds": time.monotonic() - started_s})
    return found


def _push_and_follow(
    client: Client,
    file: Path,
    name: str,
    send: Send,
    output: Output,
    detach: bool,
    described: Description,
    on_uploaded: Callable[[dict[str, Any]], None] = lambda build: None,
) -> dict[str, Any]:
    started_s = time.monotonic()
    build = upload_with_progress(file, send, output)
    version = version_of(build, name)
    # The server can count the classes after the build, so labels are set then, and refused if their number is wrong.
    early = described.metadata if detach else replace(described.metadata, labels=())
    if early:
        client.describe(name, version, early.to_json())
    if described.tokenizer:
        client.put_tokenizer(name, version, described.tokenizer)
    if notice := (build.get("published") or {}).get("notice"):
        output.note(notice)
    on_uploaded(build)
    extra = {"published": build.pop("published")} if build.get("published") else {}
    cached = build["state"] in BUILT
    try:
        if not (cached or detach):
            build = follow(client, build, output)
    finally:  # also if the user does not wait for the end of the build
        if described.metadata.labels and not detach:
            client.describe(name, version, {"labels": list(described.metadata.labels)})
    reports = attached(client, build["artifact"]) if build["artifact"] else {}
    return {"build": build, "reports": reports, "cached": cached, "seconds": time.monotonic() - started_s, **extra}


def upload_with_progress(file: Path, send: Send, output: Output) -> dict[str, Any]:
    """Calls `send`, which uploads `file`, and shows a progress bar meanwhile. Returns its result."""
    columns = TextColumn("  upload       "), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(
        *columns, console=output.progress, transient=True, disable=not output.progress.is_terminal
    ) as progress:
        task = progress.add_task("upload", total=file.stat().st_size)
        return send(lambda sent: progress.advance(task, sent))
