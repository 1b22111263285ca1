"""Follows a build on a server to its end, and shows its stages."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from service.cli.configuration import server_url
from service.core.errors import BuildFailed, OctetError, from_json

if TYPE_CHECKING:
    from service.cli.client import Client
    from service.cli.output import Output

NOT_BUILT = ("failed", "canceled")
BUILT = ("succeeded", "different")


def follow(client: Client, build: dict[str, Any], output: Output) -> dict[str, Any]:
    """Shows the build's stages until it ends. Returns the finished build, whose state may be `different`.

    Raises:
        OctetError: the build failed or was canceled.
    """
    from service.cli.stages import StageView
    from service.core.builds.build import Stage

    with StageView(output.progress) as view:
        try:
            for event in client.events(build["id"]):
                at_s = datetime.fromisoformat(event.data["at"]).timestamp()
                if event.kind == "log":
                    view.log(event.data["line"])
                elif event.kind in ("stage", "progress"):
                    view.enter(Stage(event.data["stage"]), event.data.get("fraction", 0.0), at_s)
                elif event.kind == "state":
                    view.finish(at_s, succeeded=event.data["state"] not in ("failed", "different"))
        except KeyboardInterrupt:
            output.progress.print(
                "\nThe build goes on on the server. To follow it: "
                f"[bold]octet builds {short_id(build['id'])} --wait{escape(_server_flag(client))}[/bold]"
            )
            raise
    build = client.build(build["id"])
    if build["state"] not in BUILT:
        raise error_of(build)
    return build


def _server_flag(client: Client) -> str:
    """Returns the option that another command needs to reach the same server; "" if it is the default."""
    return "" if client.server == server_url(None).rstrip("/") else f" --server {shlex.quote(client.server)}"


def short_id(build: str) -> str:
    """Returns a prefix of a build's id that identifies the build; every command accepts such a prefix."""
    return build[:8]


def error_of(build: dict[str, Any]) -> OctetError:
    if build["error"]:
        return from_json(build["error"])
    return BuildFailed(f"build {short_id(build['id'])} was {build['state']}")
