"""If a build differs from its reference runtime, everything reports it as different, and it is served only if the
difference is accepted.

The reference is a LiteRT whose every output is one step off (`tests.support.other_litert`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cli.output import DIFFERENT
from service.core.target import detect_host
from tests.support.compiled import EXAMPLES
from tests.support.other_litert import python_with_other_litert
from tests.support.serving import Served, environment, serving
from tests.support.waiting import WORK_TIMEOUT_S

DIGITS = EXAMPLES / "digits_int8.tflite"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with_other_litert(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def octet(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    data = tmp_path_factory.mktemp("data")

    def run(*arguments: object) -> tuple[int, Any]:
        command = [str(python), "-m", "service.cli", *map(str, arguments), "--json"]
        settings = environment(data_dir=data)
        ended = subprocess.run(
            command, capture_output=True, text=True, env=settings, timeout=WORK_TIMEOUT_S, check=False
        )
        assert ended.stdout, ended.stderr
        return ended.returncode, json.loads(ended.stdout)

    return run


@pytest.fixture(scope="module")
def compiled(octet: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, Any]:
    folder = tmp_path_factory.mktemp("compiled") / "out"
    return folder, *octet("compile", DIGITS, "-o", folder)


@contextmanager
def serving_with(python: Path, folder: Path, **settings: Any) -> Iterator[Served]:
    """Runs a server with the interpreter `python`. Its results are not shared with other tests, because its LiteRT
    computes other outputs.
    """
    (folder / "data" / "results").mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        with serving(folder, **settings) as served:
            yield served
            assert served.stop() == 0


@pytest.fixture(scope="module")
def served(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_with(python, tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture(scope="module")
def build(served: Served) -> Any:
    return served.ended(served.push(name="refused")["id"])


def test_compiling_ends_with_its_own_exit_status_and_a_report(compiled: tuple[Path, int, Any]) -> None:
    _, status, document = compiled
    report = document["reports"]["numerics"]
    assert status == DIFFERENT == 3
    assert (report["outcome"], report["exact"], report["verified"]) == ("different", True, False)
    assert "accepted" not in report
    assert report["summary"].endswith("by at most 1 step; the mode documents no such difference")


def test_verifying_the_folder_has_the_same_exit_status(octet: Any, compiled: tuple[Path, int, Any]) -> None:
    status, document = octet("verify", compiled[0])
    assert (status, document["outcome"], document["exact"]) == (DIFFERENT, "different", True)
    status, document = octet("verify", compiled[0], "--accept-differences")
    assert (status, document["outcome"], document["accepted"]) == (0, "different", True)


def test_running_the_folder_prints_a_note(python: Path, compiled: tuple[Path, int, Any], tmp_path: Path) -> None:
    command = [python, "-m", "service.cli", "run", compiled[0], EXAMPLES / "digits" / "2.png", "--json"]
    ended = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        env=environment(data_dir=tmp_path),
        timeout=WORK_TIMEOUT_S,
        check=True,
    )
    assert json.loads(ended.stdout)["outputs"]
    assert "note: this build differs from its reference runtime: " in " ".join(ended.stderr.split())


@pytest.mark.slow
def test_an_accepted_difference_is_recorded_in_the_artifact(octet: Any, tmp_path: Path) -> None:
    status, document = octet("compile", DIGITS, "-o", tmp_path / "out", "--accept-differences")
    report = document["reports"]["numerics"]
    assert (status, report["outcome"], report["verified"], report["accepted"]) == (0, "different", False, True)
    status, document = octet("verify", tmp_path / "out")
    assert (status, document["accepted"]) == (0, True)
    assert document["provenance"]["inputs"]["options"] == {"accept_differences": True}


def test_a_build_is_different_and_has_a_reason(served: Served, build: Any) -> None:
    assert (build["state"], build["error"]["code"], build["error"]["stage"]) == ("different", "different", "verify")
    assert "by at most 1 step; the mode documents no such difference" in build["error"]["message"]
    assert "--accept-differences" in build["error"]["hint"]
    report = served.client.get(f"/api/v1/artifacts/{build['artifact']}/numerics").json()
    assert report["outcome"] == "different"


def test_the_same_push_is_answered_by_the_same_build(served: Served, build: Any) -> None:
    response = served.client.put("/api/v1/models", params={"name": "refused"}, content=DIGITS.read_bytes())
    assert (response.status_code, response.json()["id"], response.json()["state"]) == (200, build["id"], "different")


def predict(served: Served, name: str) -> httpx.Response:
    picture = (EXAMPLES / "digits" / "3.png").read_bytes()
    return served.client.post(f"/v2/models/{name}/infer", content=picture, headers={"Content-Type": "image/png"})


def test_it_is_not_served_and_cannot_be_promoted(served: Served, build: Any) -> None:
    refused = predict(served, "refused")
    assert (refused.status_code, refused.json()["code"]) == (503, "different"), refused.text
    promoted = served.client.post("/api/v1/models/refused/promote", json={"version": 1})
    assert (promoted.status_code, promoted.json()["code"]) == (409, "conflict")
    version = served.client.get("/api/v1/models/refused").json()["versions"][0]
    assert (version["state"], "differ" in version["reason"]) == ("different", True)


def test_lists_and_metrics_count_it_separately(served: Served, build: Any) -> None:
    listed = served.client.get("/api/v1/builds", params={"state": "different"}).json()["builds"]
    assert [each["id"] for each in listed] == [build["id"]]
    target = detect_host().target.name
    (row,) = served.client.get("/api/v1/models/refused/matrix").json()["rows"]
    assert (row["state"], row["error"], row["target"]) == ("different", "different", target)
    assert f'octet_builds_total{{outcome="different",target="{target}"}} 1.0' in served.client.get("/metrics").text


def test_a_build_with_an_accepted_difference_is_served(served: Served, build: Any) -> None:
    accepted = served.ended(served.push(name="accepted", accept_differences="true")["id"])
    assert (accepted["state"], accepted["options"]) == ("succeeded", {"accept_differences": True})
    assert predict(served, "accepted").status_code == 200
    (row,) = served.client.get("/api/v1/models/accepted/matrix").json()["rows"]
    assert (row["state"], row["outcome"], row["accepted"], row["verified"]) == ("ready", "different", True, False)
    assert predict(served, "refused").status_code == 503


def test_a_pushed_folder_keeps_its_difference(served: Served, octet: Any, compiled: tuple[Path, int, Any]) -> None:
    status, pushed = octet("push", compiled[0], "--name", "folder", "--server", served.url)
    assert (status, pushed["build"]["state"], pushed["build"]["error"]["code"]) == (DIFFERENT, "different", "different")
    assert predict(served, "folder").json()["code"] == "different"
    status, pushed = octet("push", compiled[0], "--name", "taken", "--server", served.url, "--accept-differences")
    assert (status, pushed["build"]["state"]) == (0, "succeeded")
    assert predict(served, "taken").status_code == 200


def test_pushing_reports_the_difference(python: Path, served: Served, build: Any) -> None:
    command = [str(python), "-m", "service.cli", "push", str(DIGITS), "--name", "refused", "--server", served.url]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=WORK_TIMEOUT_S, check=False
    )
    assert ended.returncode == DIFFERENT
    assert "reused from the cache" in ended.stdout
    assert ", different" in ended.stdout
    assert "different: it is not served" in ended.stderr


@pytest.mark.slow
def test_a_server_may_accept_the_differences_of_all_builds(python: Path, tmp_path: Path) -> None:
    with serving_with(python, tmp_path, accept_differences="true") as served:
        build = served.ended(served.push()["id"])
        assert (build["state"], build["options"]) == ("succeeded", {"accept_differences": True})
        assert served.label(3) == 3


@pytest.mark.slow
def test_a_restored_table_contains_the_differences(python: Path, tmp_path: Path) -> None:
    with serving_with(python, tmp_path) as served:
        before = served.ended(served.push()["id"])
    for file in (tmp_path / "data").glob("octet.sqlite3*"):
        file.unlink()
    with serving_with(python, tmp_path) as served:
        (after,) = served.client.get("/api/v1/builds").json()["builds"]
        assert (after["state"], after["artifact"]) == ("different", before["artifact"])
        assert after["error"]["code"] == "different"
