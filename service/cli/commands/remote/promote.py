"""`octet promote` and `octet rollback`: choose the version that serves requests without a version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.completion import complete_model
from service.cli.configuration import server_flag
from service.cli.connection import connect
from service.cli.options import JsonOption, KeyOption, ServerOption
from service.cli.output import Output, reporting
from service.cli.versions import ModelVersion, resolve_model
from service.core.errors import InvalidInput, NotFound
from service.core.models.alias import ALL_PERCENT, STABLE

if TYPE_CHECKING:
    from service.cli.client import Client


AliasOption = Annotated[
    str, typer.Option("--alias", help='The alias to change. Requests without a version go to the alias "stable".')
]


def promote(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL:VERSION|MODEL@ALIAS",
            help="The version to send requests to, or the version that another alias points to.",
            autocompletion=complete_model,
        ),
    ],
    alias: AliasOption = STABLE,
    percent: Annotated[
        int,
        typer.Option(
            "--percent",
            min=1,
            max=ALL_PERCENT,
            help="The share of requests to send to it. Less than 100 makes the version a canary.",
        ),
    ] = ALL_PERCENT,
    least: Annotated[
        list[str] | None,
        typer.Option(
            "--least",
            metavar="SCORE=NUMBER",
            help="Promote the version only if octet evaluate --attach has measured at least this score: top1=0.7, or "
            "top1.low=0.7 for the lower end of its confidence interval. May be repeated.",
        ),
    ] = None,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send all or part of the requests for a model to this version."""
    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        if version is None:
            raise InvalidInput(f"{model} names no version", hint=f"octet models {name} lists them: {name}:VERSION")
        _show(output, name, client.promote(name, version, alias, percent, parse_least(least or ())))
        if percent < ALL_PERCENT and not as_json:
            output.next_command(f"octet promote {name}:{version}{server_flag(server)}")


def rollback(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL[@ALIAS]", help="The model, and the alias to change.", autocompletion=complete_model
        ),
    ],
    away_from: Annotated[
        int | None,
        typer.Option("--from", min=1, help="The version to roll back from.", show_default="the last promoted"),
    ] = None,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return to the previous version: end a canary, or undo a promotion."""
    with reporting(as_json) as output, connect(server, key) as client:
        named = ModelVersion.parse(model)
        if named.version is not None:
            raise InvalidInput(f"{model} is a version", hint=f"octet rollback {named.name} --from {named.version}")
        name, alias = named.name, named.alias or STABLE
        _show(output, name, client.rollback(name, alias, away_from or _promoted_last(client, name, alias)))


def parse_least(texts: Sequence[str]) -> dict[str, float]:
    """Parses scores such as `top1=0.7`. Raises `InvalidInput` if one is malformed, or occurs twice."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name or name in found or not math.isfinite(value):
            raise InvalidInput(f"{text!r} is not the least value of one more score", hint="write it like top1=0.7")
        found[name] = value
    return found


def _promoted_last(client: Client, name: str, alias: str) -> int:
    """Returns the version that was promoted last. The request for a rollback names this version, so that the server
    does not undo a later promotion.
    """
    known = next((each for each in client.model(name)["aliases"] if each["name"] == alias), None)
    if known is None:
        raise NotFound(f"model {name!r} has no alias {alias!r}", hint=f"octet models {name} lists them")
    version: int = (known["canary"] or known)["version"]
    return version


def describe_alias(alias: dict[str, Any]) -> str:
    """Returns an alias as text: `stable → 3, 4 in 10 %`."""
    canary = alias["canary"]
    return f"{alias['name']} → {alias['version']}" + (
        f", {canary['version']} in {canary['percent']} %" if canary else ""
    )


def _show(output: Output, name: str, alias: dict[str, Any]) -> None:
    if output.as_json:
        output.document(alias)
        return
    before = f" (before: {', '.join(map(str, alias['previous']))})" if alias["previous"] else ""
    output.show(f"{name}  [bold]{describe_alias(alias)}[/bold]{before}")
