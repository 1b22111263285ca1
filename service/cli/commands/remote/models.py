"""`octet models` and `octet builds`: the models on a server, and its past and current builds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from service.cli.commands.remote.promote import describe_alias
from service.cli.commands.remote.quarantine import show as show_quarantine
from service.cli.completion import complete_model
from service.cli.configuration import server_flag
from service.cli.connection import connect
from service.cli.following import follow, short_id
from service.cli.options import JsonOption, KeyOption, ServerOption
from service.cli.output import Output, reporting, where
from service.cli.tables import Table, digest, facts, number, text, whole
from service.cli.versions import FORM, resolve_model
from service.core.builds.quantization import is_quantization
from service.core.errors import Conflict, NotFound

if TYPE_CHECKING:
    from service.cli.client import Client


_MOST_BUILDS = 200
_BAD = ("failed", "different", "quarantined")
_VERSION_STYLE = {"ready": "green", "building": "yellow", **dict.fromkeys(_BAD, "bold red")}
_STATE_STYLE = {"succeeded": "green", "canceled": "dim", **dict.fromkeys(_BAD, "bold red")}


def models(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL[:VERSION|@ALIAS]]",
            help="Show only this model, with all its versions, or this version.",
            autocompletion=complete_model,
        ),
    ] = None,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the models, and whether each version is served; newest versions first."""
    with reporting(as_json) as output, connect(server, key) as client:
        listed = _versions(client, model) if model else client.models()
        if as_json:
            output.document(listed)
            return
        broken = client.broken_files()
        output.show(
            *(Text.assemble(f"{each['file']}  ", ("broken", "bold red"), f"  {each['reason']}") for each in broken)
        )
        if not (listed or broken):
            output.show("No models yet.")
            output.next_command(f"octet push FILE{server_flag(server)}")
            return
        if not listed:
            return
        table = Table(
            whole("model"),
            whole("state"),
            text("aliases"),
            whole("format", leave=2),
            number("size", leave=3),
            whole("pushed", leave=4),
            digest("source", leave=1),
        )
        for version in listed:
            aliases = "; ".join(map(describe_alias, version["aliases"]))
            about = version["format"], _size(version["size_bytes"]), _ago(version["created_at"]), version["source"]
            table.add(f"{version['name']}:{version['version']}", _version_state(version), aliases, *about)
        output.show(table, *_reasons(listed), *_metadata(listed))
        if model:
            output.show(*(Text(f"{client.server}/#/models/{each['name']}/{each['version']}") for each in listed))
        if held := client.quarantine():
            show_quarantine(output, held, server)


def _version_state(version: dict[str, Any]) -> Text:
    state = version["state"]
    return Text(state.replace("_", " "), style=_VERSION_STYLE.get(state, "dim"))


def _reasons(listed: list[dict[str, Any]]) -> Iterator[Text]:
    """Yields a line for each version that is not served, with the reason."""
    for version in listed:
        if version["reason"]:
            which = f"{version['name']}:{version['version']}  "
            yield Text.assemble(which, _version_state(version), f"  {version['reason']}")


def _metadata(listed: list[dict[str, Any]]) -> Iterator[Text]:
    """Yields a line for each version that has labels or preprocessing."""
    from service.core.models.metadata import ModelMetadata

    for version in listed:
        if metadata := ModelMetadata.from_json(version["metadata"] or {}):
            yield Text(f"{version['name']}:{version['version']}  {metadata}", style="dim")


def _versions(client: Client, text: str) -> list[dict[str, Any]]:
    """Returns the versions of a model, or the one that `text` names, each with the aliases that point to it.

    Raises:
        NotFound: the model, the version or the alias does not exist.
    """
    name, number = resolve_model(client, text)
    model = client.model(name)
    found = [
        version | {"aliases": [alias for alias in model["aliases"] if version["version"] in _versions_of_alias(alias)]}
        for version in model["versions"]
        if number in (None, version["version"])
    ]
    if not found:
        raise NotFound(f"model {name!r} has no version {number}", hint=f"octet models {name} lists them")
    return found


def _versions_of_alias(alias: dict[str, Any]) -> list[int]:
    return [each["version"] for each in (alias, alias["canary"]) if each]


def builds(
    identifier: Annotated[
        str | None,
        typer.Argument(
            metavar="BUILD", help="Show this build and its checks. The first characters of its id are enough."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar=FORM,
            help="List only builds of this model, or of this version.",
            autocompletion=complete_model,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=_MOST_BUILDS, help="The number of builds to list.")] = 20,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the build, and show its progress.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the build.")] = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the builds, newest first; or show, follow or cancel one."""
    if (wait or cancel) and not identifier:
        raise typer.BadParameter("--wait and --cancel need a BUILD")
    with reporting(as_json) as output, connect(server, key) as client:
        if identifier is None:
            listed = _builds_of(client, model, limit)
            output.document(listed) if as_json else output.show(_builds(listed))
            return
        build = client.cancel(identifier) if cancel else client.build(identifier)
        if cancel and build["state"] in ("succeeded", "different", "failed"):
            raise Conflict(
                f"build {short_id(build['id'])} ended before it could be canceled; its state is {build['state']}",
                hint=f"octet builds {short_id(build['id'])}{server_flag(server)} shows it",
            )
        if wait:
            build = follow(client, build, output)
        if as_json:
            output.document(build)
        else:
            _show_build(output, client, build)


def _builds_of(client: Client, text: str | None, limit: int) -> list[dict[str, Any]]:
    if text is None:
        return client.builds(None, limit)
    name, version = resolve_model(client, text)
    if version is None:
        return client.builds(name, limit)
    return [build for build in client.builds(name, _MOST_BUILDS) if build["version"] == version][:limit]


def _builds(listed: list[dict[str, Any]]) -> Table | Text:
    if not listed:
        return Text("No builds yet.")
    table = Table(
        whole("build"),
        whole("model"),
        text("target"),
        whole("numerics", leave=1),
        whole("state"),
        number("took", leave=3),
        whole("requested", leave=2),
    )
    for build in listed:
        columns = f"{build['model']}:{build['version']}", _target(build), build["numerics"]
        table.add(short_id(build["id"]), *columns, _state(build), _took(build), _ago(build["created_at"]))
    return table


def _show_build(output: Output, client: Client, build: dict[str, Any]) -> None:

    from service.cli.reports import attached, summary

    rows = {
        "model": f"{build['model']} version {build['version']}",
        "target": _target(build),
        "numerics": build["numerics"],
        "state": _state(build),
        "took": _took(build),
        "source": build["source"],
        "artifact": build["artifact"] or "",
    }
    if error := build["error"]:
        rows |= {"error": error["message"]} | where(error)
    output.show(facts((label, value) for label, value in rows.items() if value))
    if build["artifact"]:
        output.show(summary(attached(client, build["artifact"])))


def _target(build: dict[str, Any]) -> str:
    """Returns a build's target, and the options that distinguish it from the version's other builds for that target."""
    from service.core.builds.fixed import fixed_of
    from service.core.builds.options import accepts_differences, batch_of, tune_s_of

    options = build["options"]
    batch, tune_s = batch_of(options), tune_s_of(options)
    parts = ["quantization"] if is_quantization(options) else []
    parts += [f"batch {batch}"] if batch > 1 else []
    parts += [f"tuned for {tune_s:g} s"] if tune_s else []
    parts += [f"{name} = {', '.join(map(str, values))}" for name, values in fixed_of(options).items()]
    parts += ["differences accepted"] if accepts_differences(options) else []
    return ", ".join([build["target"], *parts])


def _state(build: dict[str, Any]) -> Text:
    state = build["state"]
    text = f"{state}, {build['stage']}" if state == "running" and build["stage"] else state
    return Text(text, style=_STATE_STYLE.get(state, "yellow"))


def _took(build: dict[str, Any]) -> str:
    if not (build["started_at"] and build["finished_at"]):
        return ""
    took = datetime.fromisoformat(build["finished_at"]) - datetime.fromisoformat(build["started_at"])
    return f"{took.total_seconds():.1f} s"


def _ago(moment: str) -> str:
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"
