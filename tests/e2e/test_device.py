"""Follows `docs/how-to/device.md`: compiles here, and runs on an arm64 Debian where the wheel is installed.

The processor is emulated by qemu's user mode, which has neither Landlock nor seccomp: commands that refuse to run
without them get `--unsandboxed`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import arm64_root
from tests.support.documented import ROOT, commands_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TARGETS = {
    "aarch64": "cortex-a53",
    "aarch64+dotprod": "neoverse-n1",
    "aarch64+i8mm": "max",
}  # the least capable CPU with this feature
_EXAMPLES = ROOT / "examples"
_PAGE = "docs/how-to/device.md"
_LINES = [command.text for command in commands_of((ROOT / _PAGE).read_text(), _PAGE)]
_PYTHON = "3.11"  # the Python version in the root file system

# The request to the server over HTTP and the call of the model in Python use the same picture.
_ASK = """
import json, sys, time, urllib.request, numpy
from PIL import Image
picture = numpy.asarray(Image.open("picture.png").convert("L").resize((16, 16)))
image = (picture // 2).astype(numpy.int8).reshape(1, 16, 16, 1)
from service import runtime
scores = runtime.load("model.octet")(image)
body = json.dumps({"inputs": [{"name": "image", "shape": [1, 16, 16, 1], "datatype": "INT8",
                               "data": image.ravel().tolist()}]}).encode()
address = "http://127.0.0.1:%s/v2/models/model.octet/infer" % sys.argv[1]
for attempt in range(300):
    try:
        answer = json.load(urllib.request.urlopen(urllib.request.Request(address, body)))
        break
    except OSError:
        time.sleep(0.2)
print(json.dumps({"python": scores.ravel().tolist(), "http": answer["outputs"][0]["data"]}))
"""


class Board:
    """An arm64 Debian, and a folder that it shares with this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def does(self, text: str, cpu: str = "max", *, fails: bool = False) -> str:
        """Runs a command of the page in the folder, and returns its output."""
        done = arm64_root.run(
            ["sh", "-euc", f'PATH="{self.folder}/venv/bin:$PATH"\n{text}'],
            bound=[self.folder],
            directory=str(self.folder),
            cpu=cpu,
            environment={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "wheels"), "HOME": str(self.folder)},
            check=False,
            timeout_s=600,
        )
        assert (done.returncode != 0) == fails, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """Octet is installed as the page describes."""
    if why := arm64_root.why_not():
        pytest.skip(f"NOT TESTED on arm64: {why}")
    folder = tmp_path_factory.mktemp("board")
    _wheels(folder / "wheels")
    shutil.copy(_EXAMPLES / "digits" / "2.png", folder / "picture.png")
    shutil.copy(_EXAMPLES / "labels.txt", folder)
    board = Board(folder)
    board.does("python3 -m venv venv")
    [install] = [line for line in _LINES if "[runtime]" in line]
    board.does(install)
    return board


def _wheels(folder: Path) -> None:
    """The wheel of Octet for aarch64, as `make wheel` builds it, and the wheels that it requires."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    aarch64 = "--config-settings=--build-option=--plat-name=manylinux_2_28_aarch64"
    build = (*pip, "wheel", "--no-deps", "--no-build-isolation", aarch64, "--wheel-dir", str(folder), str(ROOT))
    subprocess.run(build, check=True)
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 17)]
    only = ("--only-binary=:all:", f"--python-version={_PYTHON}", *platforms, "--platform=manylinux2014_aarch64")
    [wheel] = folder.glob("octet_serve-*.whl")
    subprocess.run([*pip, "download", *only, "--dest", str(folder), f"{wheel}[runtime]"], check=True)


@pytest.fixture(scope="module", params=TARGETS)
def compiled(request: pytest.FixtureRequest, board: Board) -> tuple[Board, str]:
    """The model is in the board's folder, compiled here by the page's command for a target."""
    target = str(request.param)
    text = next(line for line in _LINES if line.startswith("octet compile"))
    words = re.sub(r"--target \S+", f"--target {target}", text).split()[1:]
    shutil.rmtree(board.folder / "model.octet", ignore_errors=True)
    shutil.copy(_EXAMPLES / "digits_int8.tflite", board.folder / "model.tflite")
    subprocess.run([sys.executable, "-m", "service.cli", *words], cwd=board.folder, check=True, capture_output=True)
    return board, TARGETS[target]


def test_the_commands_of_the_page_work_on_the_board(compiled: tuple[Board, str]) -> None:
    board, cpu = compiled
    verify, run = (next(line for line in _LINES if line.startswith(f"octet {it}")) for it in ("verify", "run"))
    for line in (verify, run):
        refused = board.does(line, cpu, fails=True)
        assert "this kernel cannot sandbox" in refused
        assert "run it with --unsandboxed" in refused
    assert ": verified" in board.does(f"{verify.partition('#')[0]} --unsandboxed", cpu)
    assert board.does(f"{run} --unsandboxed", cpu).lstrip().startswith("2 ")


def test_python_and_http_give_the_same_output(compiled: tuple[Board, str]) -> None:
    board, cpu = compiled
    (board.folder / "ask.py").write_text(_ASK)
    port = 18433
    output = board.does(f"octet worker serve model.octet --port {port} --no-grpc & python3 ask.py {port}; kill $!", cpu)
    assert "no Landlock and no seccomp" in output
    [answers] = re.findall(r"{\"python\": (\[.*\]), \"http\": (\[.*\])}", output)
    assert answers[0] == answers[1]


def test_a_cpu_without_the_features_is_rejected(board: Board) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "service.cli", "compile", str(_EXAMPLES / "digits_int8.tflite")),
            *("--target", "aarch64+i8mm", "-o", str(board.folder / "other.octet")),
        ],
        check=True,
        capture_output=True,
    )
    refused = board.does("octet run other.octet picture.png", "cortex-a53", fails=True)
    assert "lacks asimddp, i8mm" in refused
