"""`octet keys` and `octet audit`: API keys, and the log of changes.

The commands use the server that --server names. Without this option, they work directly on the files in the data
folder, or on the configured database: the first key is created before a client could authenticate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.markup import escape
from rich.text import Text

from service.cli.configuration import load_checked
from service.cli.connection import connect
from service.cli.options import DataDirOption, JsonOption, KeyOption
from service.cli.output import reporting
from service.cli.tables import Table, text, whole
from service.core.access.key import Key, Limits, Scope

if TYPE_CHECKING:
    from service.api.access import Stores
    from service.core.settings import Settings

Document = dict[str, Any]
_IN_COLUMNS = ("at", "who", "action", "request_id", "replica")

keys = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)

WhereOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="OCTET_SERVER",
        help="The server's URL.",
        show_default="the data folder or OCTET_DATABASE_URL",
    ),
]


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="A description of the person or program that uses the key.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope", help="What the key allows; admin allows everything. Repeatable.", show_default="predict"
        ),
    ] = None,
    requests_per_s: Annotated[
        float | None,
        typer.Option("--requests-per-s", help="The most requests per second.", show_default="no limit"),
    ] = None,
    requests_per_day: Annotated[
        int | None,
        typer.Option(
            "--requests-per-day",
            help="The most requests per day; a day starts at midnight UTC.",
            show_default="no limit",
        ),
    ] = None,
    tenant: Annotated[
        str,
        typer.Option("--tenant", help="The tenant whose models the key gives access to.", show_default="all models"),
    ] = "",
    server: WhereOption = None,
    key: KeyOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key. It is shown once."""
    request: Document = {"name": name, "scopes": scope or [Scope.PREDICT], "tenant": tenant}
    request |= {"requests_per_s": requests_per_s, "requests_per_day": requests_per_day}
    with reporting(as_json) as output, _records(server, key, data_dir) as records:
        made = records.create_key(request)
        if as_json:
            output.document(made)
            return
        output.progress.print(f"key {made['id']}, for {', '.join(made['scopes'])}. Save it now; it is not shown again:")
        output.answers.print(made["key"], markup=False)


@keys.command("list")
def list_keys(
    server: WhereOption = None, key: KeyOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """List the API keys, without their secrets."""
    with reporting(as_json) as output, _records(server, key, data_dir) as records:
        known = records.keys()
        if as_json:
            output.document(known)
        elif known:
            output.show(_table_of_keys(known))
        else:
            output.show("there are no API keys")
            output.next_command("octet keys create NAME --scope admin")


@keys.command()
def revoke(
    id: Annotated[str, typer.Argument(help="The key's id, as octet keys list shows it.")],
    server: WhereOption = None,
    key: KeyOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke an API key. It stops working within a second."""
    with reporting(as_json) as output, _records(server, key, data_dir) as records:
        revoked = records.revoke_key(id)
        if as_json:
            output.document(revoked)
        else:
            output.show(f"{revoked['id']} ({escape(revoked['name'])}) is revoked")


def audit(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="The number of entries to list.")] = 20,
    server: WhereOption = None,
    key: KeyOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the changes to models and keys, with the key that made each; newest first."""
    with reporting(as_json) as output, _records(server, key, data_dir) as records:
        entries = records.audit(limit)
        if as_json:
            output.document(entries)
        elif entries:
            output.show(_table_of_entries(entries))
        else:
            output.show("there are no changes yet")


class Records(Protocol):
    """The keys and the audit log, local or on a server. Documents have the API's form."""

    def keys(self) -> list[Document]: ...
    def create_key(self, request: Document) -> Document: ...
    def revoke_key(self, identifier: str) -> Document: ...
    def audit(self, limit: int) -> list[Document]: ...


class Stored:
    """The keys and the audit log in this machine's data folder, or in the configured database."""

    def __init__(self, stores: Stores) -> None:
        self._keys, self._audit = stores.ring(), stores.audit

    def keys(self) -> list[Document]:
        return [_to_document(key) for key in self._keys.read().values()]

    def create_key(self, request: Document) -> Document:
        limits = Limits(request["requests_per_s"], request["requests_per_day"])
        key, text = self._keys.create(request["name"], request["scopes"], limits, request["tenant"])
        return {**_to_document(key), "key": text}

    def revoke_key(self, identifier: str) -> Document:
        return _to_document(self._keys.revoke(identifier))

    def audit(self, limit: int) -> list[Document]:
        return self._audit.last(limit)


@contextmanager
def _records(server: str | None, key: str | None, data_dir: Path | None) -> Iterator[Records]:
    if server is None:
        with _stores(load_checked({"data_dir": data_dir})) as stores:
            yield Stored(stores)
        return
    with connect(server, key) as client:
        yield client


@contextmanager
def _stores(settings: Settings) -> Iterator[Stores]:
    from service.api.access import stores_of

    if settings.database_url is None:
        yield stores_of(settings)
        return
    from service.db import Database

    database = Database.of(settings)
    try:
        database.migrate()
        yield stores_of(settings, database)
    finally:
        database.close()


def _to_document(key: Key) -> Document:
    from service.api.control import views

    return views.key(key).model_dump(mode="json")


def _table_of_keys(known: Sequence[Document]) -> Table:
    table = Table(
        whole("id"),
        text("name"),
        whole("tenant", leave=3),
        whole("scopes"),
        whole("limits", leave=2),
        whole("made", leave=1),
        whole(),
    )
    for key in known:
        limits = [f"{key['requests_per_s']:g}/s"] if key["requests_per_s"] else []
        limits += [f"{key['requests_per_day']:,}/day"] if key["requests_per_day"] else []
        revoked = Text("revoked" if key["revoked_at"] else "", style="red")
        row = (
            key["id"],
            key["name"],
            key.get("tenant", ""),
            ", ".join(key["scopes"]),
            ", ".join(limits),
            key["created_at"][:10],
        )
        table.add(*row, revoked)
    return table


def _table_of_entries(entries: Sequence[Document]) -> Table:
    table = Table(whole("when"), whole("who"), whole("what"), text("details"))
    for entry in entries:
        what = {name: value for name, value in entry.items() if name not in _IN_COLUMNS and value is not None}
        details = " ".join(f"{name}={value}" for name, value in what.items())
        table.add(entry["at"][:19].replace("T", " "), entry["who"], entry["action"], details)
    return table
