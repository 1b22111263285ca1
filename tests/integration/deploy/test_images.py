"""Images built from the unchanged Dockerfile run as in an orchestrator: unprivileged, with a read-only root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.contained import contained
from tests.support.deployment import ROOT, stages
from tests.support.images_built import BASE, Images, why_not
from tests.support.serving import Served
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(why_not() is not None, reason=f"NOT TESTED: {why_not()}"),
]

TARGETS = ("worker", "worker-cuda", "compiler", "api")
GIVEN = {"VERSION": "7.8.9", "REVISION": "0" * 40, "CREATED": "2026-01-02T03:04:05Z"}
MB = 10**6
# The largest unpacked size that an image may add to its base.
MOST_BYTES = {"worker": 165 * MB, "worker-cuda": 165 * MB, "compiler": 1350 * MB, "api": 1350 * MB}


@pytest.fixture(scope="module")
def images() -> Images:
    return Images(ROOT / "build" / "images")


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def image(images: Images, target: str) -> str:
    return images.build(target, f"octet.test/{target}:tested", GIVEN)


def size_bytes(root: Path) -> int:
    """Returns the total size of the files. Each file counts once, as in the layers of an image."""
    found = {(status.st_dev, status.st_ino): status.st_size for status in map(Path.lstat, root.rglob("*"))}
    return sum(found.values())


def test_it_adds_little_to_its_base(images: Images, image: str, target: str) -> None:
    with images.root(BASE) as base, images.root(image) as root:
        added_bytes = size_bytes(root) - size_bytes(base)
    print(f"{target}: {added_bytes / MB:.1f} MB over its base")
    assert 50 * MB < added_bytes < MOST_BYTES[target]


def test_its_labels_describe_it(images: Images, image: str, target: str) -> None:
    labels = images.configuration(image)["Labels"]
    ours = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert (
        ours["title"]
        == {
            "worker": "Octet worker",
            "worker-cuda": "Octet worker for NVIDIA's cards",
            "compiler": "Octet compiler",
            "api": "Octet",
        }[target]
    )
    assert "quantized to 8 bits" in ours["description"]
    assert ours["licenses"] == "Apache-2.0"
    assert {name: ours[name.lower()] for name in GIVEN} == GIVEN


def test_it_runs_unprivileged_with_one_volume(images: Images, image: str, target: str) -> None:
    found, stage = images.configuration(image), stages()[target]
    assert found["User"] == "10001:10001"
    assert tuple(found["Entrypoint"]) == stage.entrypoint
    assert tuple(found["Volumes"]) == stage.volumes
    assert tuple(port.partition("/")[0] for port in found.get("ExposedPorts") or {}) == stage.ports
    with images.root(image) as root:
        writable = [path for path in (root / "opt").rglob("*") if path.lstat().st_uid or path.lstat().st_mode & 0o022]
        assert [path for path in writable if not path.is_symlink()] == []
        assert (root / "data").stat().st_uid == 10001


@pytest.fixture(scope="module")
def worker(images: Images) -> str:
    return images.build("worker", "octet.test/worker:tested", GIVEN)


@pytest.fixture(scope="module")
def api(images: Images) -> str:
    return images.build("api", "octet.test/api:tested", GIVEN)


def test_the_worker_has_no_compiler(images: Images, worker: str) -> None:
    with images.root(worker) as root:
        (packages,) = (root / "opt/octet/lib").glob("python3*/site-packages")
        names = {path.name.lower().partition("-")[0] for path in packages.iterdir()}
        libraries = {path.name for path in (root / "opt").rglob("*tvm*.so*")}
    assert {"numpy", "service", "obstore", "psycopg"} <= names
    assert not names & {"tvm", "tvm_ffi", "apache_tvm", "ziglang", "tflite", "ml_dtypes", "torch", "pip", "setuptools"}
    assert libraries == set()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@contextmanager
def serving(images: Images, image: str, data: Path, *arguments: str) -> Iterator[Served]:
    variables = {"OCTET_HOST": "127.0.0.1", "OCTET_PORT": "0", "OCTET_GRPC_PORT": "0", "OCTET_AUTH": "off"}
    with images.root(image) as root:
        configuration = images.configuration(image)
        with contained(root, data, configuration, *arguments, "--json", **variables) as process:
            assert process.stdout is not None
            served = Served(process, json.loads(process.stdout.readline())["url"])
            with served.client:
                yield served


def test_the_api_and_a_worker_serve_what_the_api_compiled(images: Images, api: str, worker: str, data: Path) -> None:
    with serving(images, api, data, "serve") as server:
        build = server.ended(server.push()["id"])
        assert build["state"] == "succeeded", build
        assert [server.label(digit) for digit in (2, 7)] == [2, 7]
        assert server.stop() == 0
    with serving(images, worker, data, "serve", "--no-compile") as server:
        assert [server.label(digit) for digit in (2, 7)] == [2, 7]
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("file", "witness"),
    [
        ("examples/digits_int8.tflite", "LiteRT"),
        ("tests/fixtures/onnx/mobilenet_v3.qdq.onnx", "ONNX Runtime"),
        ("tests/fixtures/torch/branches.pt", "PyTorch"),
        ("tests/fixtures/torch/layers.pt2", "PyTorch"),
    ],
)
def test_builds_are_compared_with_the_runtime_of_their_format(
    file: str, witness: str, images: Images, api: str, data: Path
) -> None:
    source = data / Path(file).name
    source.write_bytes((ROOT / file).read_bytes())
    with images.root(api) as root:
        arguments = ["compile", f"/data/{source.name}", "--output", "/data/out", "--json"]
        with contained(root, data, images.configuration(api), *arguments) as process:
            printed, _ = process.communicate(timeout=WORK_TIMEOUT_S)
            assert process.returncode == 0
    report: dict[str, Any] = json.loads(printed)["reports"]["numerics"]
    (compared,) = [each for each in report["witnesses"] if each["name"] == witness]
    assert compared["ran"], compared
