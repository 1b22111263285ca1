"""Tests of the findings of `octet doctor` in a data folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cache import OciLayout
from service.cli.app import app
from service.core.digest import digest_of
from service.core.settings import Settings
from service.core.target import detect_host
from service.db import Database
from service.workers.crashes import Crashes, CrashFile
from tests.support.buckets import s3_server, s3_url
from tests.support.compiled import EXAMPLES
from tests.support.databases import postgres_schema, postgres_server
from tests.support.old_cpu import LACKS, on_old_cpu
from tests.support.serving import serving

__all__ = ["postgres_schema", "postgres_server", "s3_server", "s3_url"]

Checks = dict[str, dict[str, str]]
Doctor = Callable[..., Checks]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def doctor(settings: Settings) -> Doctor:
    def run(status: int = 0) -> Checks:
        result = CliRunner().invoke(
            app, ["doctor", "--data-dir", str(settings.data_dir), "--server", "127.0.0.1:1", "--json"]
        )
        assert result.exit_code == status, result.output
        return {check["name"]: check for check in json.loads(result.stdout)}

    return run


def test_it_shows_the_targets_of_this_machine_and_its_software(doctor: Doctor) -> None:
    checks = doctor()
    assert checks["target"]["detail"].endswith(detect_host().target.name)
    for tool in ("tvm 0.27.0.post1", "tvm_ffi 0.1.14.post1", "linker 0.17.0", "llvm 22"):
        assert tool in checks["toolchain"]["detail"]
    assert {"landlock", "seccomp"} <= checks.keys()


def test_the_key_is_sent_to_a_server_that_requires_one(tmp_path: Path) -> None:
    admin_key = "octet_cluster_" + 48 * "x"
    with serving(tmp_path, admin_key=admin_key) as served:

        def server(*options: str) -> dict[str, str]:
            folder = ["--data-dir", str(tmp_path / "own")]
            result = CliRunner().invoke(app, ["doctor", *folder, "--server", served.url, "--json", *options])
            return dict(next(check for check in json.loads(result.stdout) if check["name"] == "server"))

        assert server("--key", admin_key)["state"] == "ok"
        refused = server()
        assert (refused["state"], "an API key is required" in refused["detail"]) == ("warning", True)


def test_it_shows_how_builds_share_the_machine_with_predictions(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTET_BUILD_NICE", "12")
    assert doctor()["builds"]["detail"].endswith("at niceness 12")


def test_it_shows_which_cores_predictions_use(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = tuple(frozenset([cpu]) for cpu in range(8))
    monkeypatch.setattr("service.cli.commands.local.checks.usable_cores", lambda: cores)
    monkeypatch.setattr("service.cli.commands.local.checks.computing_cores", lambda: cores[4:])
    monkeypatch.setattr("service.cli.commands.local.checks.affordable_threads", lambda: 4)
    detail = doctor()["predictions"]["detail"]
    assert detail == "run on the 4 fastest of 8 cores, 4, 5, 6, 7, 4 threads at a time"


def test_a_machine_without_a_supported_target_is_a_problem(doctor: Doctor, tmp_path: Path) -> None:
    with on_old_cpu(tmp_path):
        checks = doctor(status=1)
    assert checks["target"]["state"] == "problem"
    message = f"can run none of the targets: for x86-64-v3, the closest, it lacks {LACKS}"
    assert message in checks["target"]["detail"]
    assert "cannot run predictions" in checks["target"]["hint"]
    assert "runs" not in checks
    assert checks["cannot run"]["state"] == "note"


def test_a_stopped_server_is_not_a_problem(doctor: Doctor) -> None:
    assert doctor()["server"]["state"] == "note"


def test_a_missing_folder_is_not_a_problem_and_is_not_created(doctor: Doctor, settings: Settings) -> None:
    assert "does not exist yet" in doctor()["data"]["detail"]
    assert not settings.data_dir.exists()


def test_a_new_store_is_not_a_problem(doctor: Doctor, settings: Settings) -> None:
    settings.store_dir.mkdir(parents=True)
    assert "store" not in doctor()


def test_an_intact_store_and_database(doctor: Doctor, settings: Settings) -> None:
    OciLayout(settings.store_dir).blobs.put_bytes(b"blob")
    Database(settings.url_of_database).migrate()
    checks = doctor()
    assert checks["store"]["detail"] == "1 blobs, 1 of them hashed (0 MB), all intact"
    assert checks["database"]["state"] == "ok"


def test_a_damaged_blob_is_a_problem(doctor: Doctor, settings: Settings) -> None:
    blobs = OciLayout(settings.store_dir).blobs
    digest = blobs.put_bytes(b"blob")
    path = blobs.path(digest)
    path.chmod(0o644)
    path.write_bytes(b"blub")
    checks = doctor(status=1)
    assert checks["store"]["state"] == "problem"
    assert digest in checks["store"]["detail"]


def test_a_folder_that_is_not_a_store_is_a_problem(doctor: Doctor, settings: Settings) -> None:
    settings.store_dir.mkdir(parents=True)
    (settings.store_dir / "other").touch()
    assert doctor(status=1)["store"]["state"] == "problem"


def test_an_unreachable_database_and_bucket_are_problems(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password is not printed."""
    monkeypatch.setattr("service.cli.commands.local.checks._DATABASE_S", 0.2)
    monkeypatch.setattr("service.cli.commands.local.checks._BUCKET_S", 0.2)
    monkeypatch.setenv("OCTET_DATABASE_URL", "postgresql://octet:hunter2@127.0.0.1:1/octet")
    monkeypatch.setenv("OCTET_STORE_URL", "s3://octet/models")
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:1", "ALLOW_HTTP": "true", "REGION": "here"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "octet")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    checks = doctor(status=1)
    for name in ("database", "store"):
        assert (checks[name]["state"], "hunter2" in str(checks[name])) == ("problem", False)
        assert "127.0.0.1" in checks[name]["detail"] or "s3://octet/models" in checks[name]["detail"]


def test_a_reachable_database_and_bucket(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, postgres_schema: str, s3_url: str
) -> None:
    monkeypatch.setenv("OCTET_DATABASE_URL", postgres_schema)
    monkeypatch.setenv("OCTET_STORE_URL", s3_url)
    checks = doctor()
    assert checks["database"]["state"] == "note"
    assert checks["store"]["detail"] == f"{s3_url}, still empty"
    database = Database(postgres_schema)
    database.migrate()
    database.close()
    assert "PostgreSQL, schema" in doctor()["database"]["detail"]


def test_a_file_that_is_not_a_database_is_a_problem(doctor: Doctor, settings: Settings) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / "octet.sqlite3").write_bytes(b"not a database, and longer than its header is" * 10)
    assert doctor(status=1)["database"]["state"] == "problem"


def test_an_old_database_is_upgraded_by_the_next_start(doctor: Doctor, settings: Settings) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / "octet.sqlite3").touch()
    assert doctor()["database"]["state"] == "note"


def test_an_artifact_in_quarantine_is_a_problem(doctor: Doctor, settings: Settings) -> None:
    artifact = digest_of(b"artifact")
    Crashes(CrashFile(settings.crashes_file), limit=1, window_s=60).note([artifact], "signal 11: Segmentation fault")
    found = doctor(status=1)["quarantine"]
    assert artifact in found["detail"]
    assert "signal 11" in found["detail"]


def python_api(settings: Settings, folder: Path) -> list[dict[str, str]]:
    """Returns the findings about `import octet` of a process that also imports packages from `folder`."""
    command = [sys.executable, "-m", "service.cli", "doctor", "--data-dir", str(settings.data_dir), "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(EXAMPLES.parent)])}
    ended = subprocess.run(
        [*command, "--server", "127.0.0.1:1"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return [check for check in json.loads(ended.stdout) if check["name"] == "python api"]


def test_the_python_api_is_not_mentioned_if_it_is_the_only_one(settings: Settings, tmp_path: Path) -> None:
    assert python_api(settings, tmp_path) == []


@pytest.mark.parametrize("project", ["octet", "octet-music"])
def test_another_project_in_the_folder_of_the_python_api(settings: Settings, project: str, tmp_path: Path) -> None:
    info = tmp_path / f"{project.replace('-', '_')}-9.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 9.1\n")
    (info / "top_level.txt").write_text("octet\n")
    (check,) = python_api(settings, tmp_path)
    assert check["state"] == "problem"
    assert check["detail"] == f"another project, {project} 9.1, is installed in its folder"
    assert check["hint"].startswith(f"pip uninstall {project} && pip install")


def test_another_package_that_hides_the_python_api(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "octet").mkdir()
    (tmp_path / "octet" / "__init__.py").touch()
    (check,) = python_api(settings, tmp_path)
    expected = EXAMPLES.parent / "octet" / "__init__.py"
    assert check["detail"] == f"import octet finds {tmp_path}/octet/__init__.py, not {expected}"
