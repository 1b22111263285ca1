"""Tests of `octet gc` on a data folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cache import MIN_AGE_S, OciLayout
from service.cli.app import app
from service.core.digest import Digest
from service.core.settings import Settings
from service.db import Database, ModelStore
from tests.support.blobs import age_blob


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def layout(settings: Settings) -> OciLayout:
    return OciLayout(settings.store_dir)


def gc(settings: Settings, *options: str) -> Result:
    return CliRunner().invoke(app, ["gc", "--data-dir", str(settings.data_dir), *options])


def put_old(layout: OciLayout, data: bytes) -> Digest:
    digest = layout.blobs.put_bytes(data)
    age_blob(layout.root, digest, 2 * MIN_AGE_S)
    return digest


def test_unused_blobs_are_deleted_and_their_size_is_shown(settings: Settings, layout: OciLayout) -> None:
    orphan, young = put_old(layout, b"orphan"), layout.blobs.put_bytes(b"young")
    result = gc(settings, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"deleted": [orphan], "size_bytes": len(b"orphan")}
    assert list(layout.blobs.iterate()) == [young]


def test_the_output_for_people(settings: Settings, layout: OciLayout) -> None:
    put_old(layout, bytes(2_500_000))
    assert gc(settings).stdout == "1 files deleted, 2.5 MB\n"


def test_models_are_kept(settings: Settings, layout: OciLayout) -> None:
    database = Database(settings.url_of_database)
    database.migrate()
    ModelStore(database).push("digits", put_old(layout, b"a model"), "tflite", 7)
    database.close()
    assert json.loads(gc(settings, "--json").stdout)["deleted"] == []


def test_the_minimum_age_can_be_chosen(settings: Settings, layout: OciLayout) -> None:
    young = layout.blobs.put_bytes(b"young")
    assert json.loads(gc(settings, "--json", "--older-than", "0").stdout)["deleted"] == [young]


def test_remains_of_interrupted_uploads_are_deleted(settings: Settings, layout: OciLayout) -> None:
    uploads = settings.store_dir / "uploads"
    uploads.mkdir(exist_ok=True)
    (uploads / "left").write_bytes(b"half of")
    gc(settings)
    assert list(uploads.iterdir()) == []


def test_a_missing_store_is_not_created(settings: Settings) -> None:
    result = gc(settings, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == "not_found"
    assert not settings.data_dir.exists()
