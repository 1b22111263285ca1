"""`octet gc`: frees space in the data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.cache import MIN_AGE_S
from service.cli.configuration import load_checked
from service.cli.options import DataDirOption, JsonOption
from service.cli.output import reporting

if TYPE_CHECKING:
    from service.core.settings import Settings


def gc(
    data_dir: DataDirOption = None,
    older_than_s: Annotated[
        float,
        typer.Option(
            "--older-than",
            metavar="SECONDS",
            min=0,
            help="Keep files that are newer than this. A value below the default is safe only while nothing is "
            "pushed or built.",
        ),
    ] = MIN_AGE_S,
    as_json: JsonOption = False,
) -> None:
    """Delete stored files that no model, build or artifact needs. octet serve does this every hour."""
    with reporting(as_json) as output:
        digests, size_bytes = _collect(load_checked({"data_dir": data_dir}), older_than_s)
        if as_json:
            output.document({"deleted": digests, "size_bytes": size_bytes})
        else:
            output.show(f"{len(digests)} files deleted, {size_bytes / 1e6:.1f} MB")


def _collect(settings: Settings, older_than_s: float) -> tuple[list[str], int]:
    from service.cache import OciLayout
    from service.db import BuildStore, Database, ModelStore, VerificationStore
    from service.workers.crashes import crashes_of
    from service.workers.garbage import collect_garbage
    from service.workers.store import open_store

    if settings.store_url is None:
        OciLayout.open(settings.store_dir)  # raises if the store does not exist; `open_store` would create one
    database = Database.of(settings)
    try:
        database.migrate()
        layout = open_store(settings, database)  # also removes uploads that killed processes left
        builds, models = BuildStore(database), ModelStore(database)
        crashes, verifications = crashes_of(settings, database), VerificationStore(database)
        collected = collect_garbage(layout, builds, models, crashes, verifications, older_than_s)
    finally:
        database.close()
    return [str(digest) for digest in collected.digests], collected.size_bytes
