"""`octet serve --models` serves the models in a folder, and follows changes of the folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.compiled import EXAMPLES
from tests.support.serving import INT8, UINT8, Served, environment, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually


def put(file: str, path: Path) -> None:
    """Moves the file into place atomically, as `mv` does."""
    beside = path.with_name(f".{path.name}")
    shutil.copyfile(EXAMPLES / file, beside)
    beside.rename(path)


def models(served: Served) -> dict[str, tuple[int, str]]:
    listed = served.client.get("/api/v1/models").json()["models"]
    return {each["name"]: (each["version"], each["state"]) for each in listed}


def datatype(served: Served) -> str:
    """Returns the datatype of the version that is served."""
    read: str = served.client.get("/v2/models/digits").json()["inputs"][0]["datatype"]
    return read


def octet(*arguments: object) -> str:
    command = [sys.executable, "-m", "service.cli", *map(str, arguments)]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True, timeout=WORK_TIMEOUT_S
    ).stdout


def wait_until_ready(served: Served) -> None:
    eventually(lambda: served.client.get("/v2/health/ready").status_code == httpx.codes.OK, WORK_TIMEOUT_S)


@pytest.mark.slow
def test_a_folder_is_served_and_followed(tmp_path: Path) -> None:
    folder, data = tmp_path / "models", tmp_path / "server"
    folder.mkdir()
    data.mkdir()
    put(INT8, folder / "digits.tflite")
    octet("compile", EXAMPLES / INT8, "--output", folder / "compiled.octet")
    (folder / "notes.tflite").write_text("not a model")
    settings = {"model_files": json.dumps([str(folder)])}
    with serving(data, **settings) as served:
        wait_until_ready(served)
        assert models(served) == {"compiled": (1, "ready"), "digits": (1, "ready")}
        assert (served.label(3), served.label(3, "compiled")) == (3, 3)
        assert "notes.tflite  broken  the file is not a model" in octet("models", "--server", served.url)

        put(UINT8, folder / "digits.tflite")  # a new version, which is served after it was built
        eventually(lambda: models(served)["digits"] == (2, "ready"), WORK_TIMEOUT_S)
        eventually(lambda: datatype(served) == "UINT8", WORK_TIMEOUT_S)

        shutil.rmtree(folder / "compiled.octet")
        eventually(lambda: "compiled" not in models(served), WORK_TIMEOUT_S)
        # The tables change a moment before the data plane does.
        eventually(lambda: served.client.get("/v2/models/compiled").status_code == httpx.codes.NOT_FOUND)
        assert served.stop() == 0

    (folder / "digits.tflite").unlink()
    put(INT8, folder / "late.tflite")
    with serving(data, **settings) as served:
        wait_until_ready(served)
        eventually(lambda: models(served) == {"late": (1, "ready")}, WORK_TIMEOUT_S)
        assert served.label(8, "late") == 8
        assert served.stop() == 0
