"""Follows docs/how-to/databases-and-buckets.md: a backup is restored, and data are moved from SQLite and a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.buckets import s3_server, s3_url
from tests.support.databases import own_database, postgres_schema, postgres_server
from tests.support.documented import ROOT
from tests.support.s3_server import environment as s3_environment
from tests.support.serving import serving
from tests.support.waiting import WORK_TIMEOUT_S

__all__ = ["postgres_schema", "postgres_server", "s3_server", "s3_url"]

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "how-to" / "databases-and-buckets.md"
PLACE = "octet-models/production"


@pytest.fixture
def copies() -> None:
    for program in ("rclone", "pg_dump", "pg_restore"):
        if shutil.which(program) is None:
            pytest.skip(f"NOT TESTED: {program} is not installed (apt-get install rclone postgresql-client)")


def commands(section: str) -> list[str]:
    """Returns the commands in a section of the page, except those that start the server."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].partition("\n## ")[0]
    found = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert found
    return [command for command in found if command != "octet serve"]


def follow(section: str, folder: Path, database: str, index: str, s3: dict[str, str]) -> None:
    client = {
        "RCLONE_CONFIG_S3_TYPE": "s3",
        "RCLONE_CONFIG_S3_PROVIDER": "Other",
        "RCLONE_CONFIG_S3_ENV_AUTH": "true",
        "RCLONE_CONFIG_S3_ENDPOINT": s3["AWS_ENDPOINT_URL"],
        "RCLONE_S3_NO_CHECK_BUCKET": "true",
        "OCTET_DATABASE_URL": database,
        "HOME": str(folder),
    }
    # rclone does not accept this variable
    inherited = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    for command in commands(section):
        text = command.replace(PLACE, index)
        run = subprocess.run(
            ["bash", "-ec", text], cwd=folder, env=inherited | client, capture_output=True, timeout=WORK_TIMEOUT_S
        )
        assert run.returncode == 0, f"{text}\n{run.stderr.decode()}"


def test_a_backup_is_restored(copies: None, tmp_path: Path, s3_server: int, s3_url: str, postgres_server: str) -> None:
    s3 = s3_environment(s3_server)
    position = urlsplit(s3_url).netloc + urlsplit(s3_url).path
    with own_database(postgres_server) as before, own_database(postgres_server) as after:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        with serving(tmp_path / "one", database_url=before, store_url=s3_url) as served:
            build = served.ended(served.push()["id"])
            assert build["state"] == "succeeded"
            follow("Back up", tmp_path, before, position, s3)
            assert served.stop() == 0
        restored = f"{s3_url}-restored"
        follow("Restore", tmp_path, after, f"{position}-restored", s3)
        with serving(tmp_path / "two", database_url=after, store_url=restored) as served:
            assert served.build(build["id"]) == build
            assert served.label(7) == 7
            assert served.stop() == 0


def test_a_folder_is_moved_into_a_bucket(
    copies: None, tmp_path: Path, s3_server: int, s3_url: str, postgres_schema: str
) -> None:
    position = urlsplit(s3_url).netloc + urlsplit(s3_url).path
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "one") as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        assert served.stop() == 0
    home = tmp_path / ".local" / "share" / "octet"
    home.parent.mkdir(parents=True)
    (tmp_path / "one" / "data").rename(home)
    follow("From SQLite and a folder", tmp_path, postgres_schema, position, s3_environment(s3_server))
    with serving(tmp_path / "two", database_url=postgres_schema, store_url=s3_url) as served:
        assert served.label(3) == 3
        assert served.stop() == 0
