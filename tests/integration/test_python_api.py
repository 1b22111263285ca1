"""The public Python API on real files and a real server."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import octet
from service.core.artifacts.buffers import aligned_empty
from service.core.models.arrays import Array
from tests.support.compiled import EXAMPLES
from tests.support.serving import serving

EXPECTED = json.loads((EXAMPLES / "expected.json").read_text())
MODEL = EXAMPLES / "digits_int8.tflite"
STORED = EXPECTED[MODEL.name]["reference"]


PAGE = EXAMPLES.parent / "docs" / "how-to" / "python.md"


def digit(number: int) -> Array:
    """Returns a picture as the model stores it: `[1, 16, 16, 1] int8`."""
    pixels = np.asarray(Image.open(EXAMPLES / "digits" / f"{number}.png").convert("L").resize((16, 16)))
    return (pixels.astype(np.int16) - 128).astype(np.int8).reshape(1, 16, 16, 1)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> octet.Artifact:
    return octet.compile(MODEL, tmp_path_factory.mktemp("compiled") / "digits")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("data")) as served:
        yield served.url


class TestOnThisMachine:
    def test_a_model_gives_the_outputs_of_the_reference(self, artifact: octet.Artifact) -> None:
        model = artifact.load()
        for number in (2, 8):
            assert model(digit(number)).tolist() == [STORED[number]]
        assert octet.load(artifact.path, threads=1)(digit(2)).tolist() == [STORED[2]]

    def test_what_is_printed(self, artifact: octet.Artifact) -> None:
        model = artifact.load()
        assert (
            repr(model)
            == f"<octet.Model {artifact.digest[:19]} (image: INT8[1, 16, 16, 1]) -> (probabilities: INT8[1, 10])>"
        )
        assert repr(artifact).startswith(
            f"<octet.Artifact {artifact.digest[:19]} in {artifact.path}: checked against LiteRT"
        )
        assert artifact.is_exact
        assert model.report() == artifact.reports["numerics"]
        assert model.report("coverage") == artifact.reports["coverage"]

    def test_bound_arrays_are_read_and_written(self, artifact: octet.Artifact) -> None:
        model = artifact.load()
        given, found = aligned_empty((1, 16, 16, 1), np.dtype("int8")), aligned_empty((1, 10), np.dtype("int8"))
        model.bind([given], [found])
        for number in (2, 8):
            given[:] = digit(number)
            model()
            assert found.tolist() == [STORED[number]]

    def test_a_temporary_folder_lives_as_long_as_its_last_user(self) -> None:
        stages: list[str] = []
        made = octet.compile(MODEL, on_stage=stages.append)
        assert stages == ["import", "select", "legalize", "canonicalize", "codegen", "link", "verify", "publish"]
        path, model = made.path, made.load()
        del made
        gc.collect()
        assert path.exists()
        assert model(digit(2)).tolist() == [STORED[2]]
        del model
        gc.collect()
        assert not path.exists()

    def test_errors_are_those_of_octet(self, tmp_path: Path) -> None:
        text = tmp_path / "model.tflite"
        text.write_text("no model")
        with pytest.raises(octet.errors.UnsupportedFormat):
            octet.compile(text)
        with pytest.raises(octet.errors.NotFound):
            octet.load(tmp_path)


class TestOnAServer:
    def test_push_predict_promote_and_delete(self, url: str) -> None:
        with octet.Client(url) as client:
            build = client.push(MODEL, "digits")
            assert (build.model, build.version, build.state, build.is_served) == ("digits", 1, "succeeded", True)
            assert client.builds("digits")[0].artifact == build.artifact
            for number in (2, 8):
                assert client.predict("digits", digit(number)).tolist() == [STORED[number]]
            assert client.predict("digits", (EXAMPLES / "digits" / "8.png").read_bytes()).argmax() == 8
            second = client.push(EXAMPLES / "digits_uint8.tflite", "digits", wait=False)
            assert client.wait(second.id).version == 2
            client.promote("digits", 1)
            client.promote("digits", 2)
            client.rollback("digits", away_from=2)
            assert client.models() == ["digits"]
            with pytest.raises(ValueError, match=r"digits has 1 inputs \(image\), not 2"):
                client.predict("digits", digit(2), digit(2))
            client.delete("digits", force=True)
            with pytest.raises(octet.errors.NotFound):
                client.predict("digits", digit(2))

    def test_calls_overlap_in_asyncio(self, url: str) -> None:
        async def ask() -> list[list[list[int]]]:
            async with octet.AsyncClient(url) as client:
                await client.push(MODEL, "overlapping")
                outputs = await asyncio.gather(*(client.predict("overlapping", digit(n)) for n in range(10)))
                return [output.tolist() for output in outputs]

        assert asyncio.run(ask()) == [[stored] for stored in STORED]

    def test_a_refused_file_raises_the_error_of_the_server(self, url: str, tmp_path: Path) -> None:
        text = tmp_path / "model.tflite"
        text.write_text("no model")
        with octet.Client(url) as client, pytest.raises(octet.errors.UnsupportedFormat):
            client.push(text, "text")

    def test_no_server(self) -> None:
        with octet.Client("http://127.0.0.1:1") as client, pytest.raises(octet.errors.OctetError, match="no answer"):
            client.models()


def test_the_programs_of_the_page(url: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "README.md").write_text("# Octet")
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    printed = []
    for program in programs:
        command = [sys.executable, "-c", program.replace("http://localhost:8080", url)]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        printed.append(ended.stdout.splitlines())
    compiled, served, refused = printed
    assert compiled[-1] == served[-1] == "7"
    assert refused[0].startswith("unsupported_format ")
