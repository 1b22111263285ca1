"""The public Python API on real files and a real server."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import octet
from service.cli.app import app
from service.core.artifacts.buffers import aligned_empty
from service.core.models.arrays import Array
from tests.support.compiled import EXAMPLES
from tests.support.float_networks import dense_network, pictures, residual_network
from tests.support.serving import serving
from tests.support.waiting import WORK_TIMEOUT_S

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


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float model that takes pictures `[1, 3, 16, 16] float32`."""
    path = tmp_path_factory.mktemp("float") / "network.onnx"
    path.write_bytes(residual_network())
    return path


class TestQuantize:
    @pytest.mark.slow
    def test_arrays_of_the_program_give_the_file_of_the_command(self, network: Path, tmp_path: Path) -> None:
        images = pictures(12)
        np.savez(tmp_path / "inputs.npz", image=images)
        (tmp_path / "labels.csv").write_text("3\n" * 12)
        quantized = octet.quantize(
            network, tmp_path / "own.onnx", data=({"image": image} for image in images), labels=[3] * 12, method="mse"
        )
        options = ["--data", tmp_path / "inputs.npz", "--labels", tmp_path / "labels.csv", "--method", "mse"]
        command = [network, *options, "-o", tmp_path / "command.onnx", "--json"]
        result = CliRunner().invoke(app, ["quantize", *map(str, command)])
        report = json.loads(result.stdout)
        assert quantized.path.read_bytes() == (tmp_path / "command.onnx").read_bytes()
        assert {"output": str(tmp_path / "command.onnx"), **quantized.report} == report
        assert report["accuracy"]["float"]["inputs"] == 12

    @pytest.mark.slow
    def test_only_the_requested_number_of_samples_is_read(self, network: Path) -> None:
        images = iter(pictures(20))
        quantized = octet.quantize(network, data=images, samples=3)
        assert quantized.report["inputs"] == 3
        assert len(list(images)) == 17

    def test_the_result_compiles_and_is_deleted_with_its_last_user(self, network: Path) -> None:
        stages: list[str] = []
        quantized = octet.quantize(network, data=pictures(4), sensitivity=True, on_stage=stages.append)
        assert stages == ["calibrate", "rank", "measure"]
        assert octet.compile(quantized).is_exact
        path = quantized.path
        assert re.fullmatch(
            rf"<octet.Quantized {path}: 9 operators in integers, 1 in float; scores \d+\.\d dB; same class \d of 4>",
            repr(quantized),
        )
        assert quantized.outputs_db == quantized.report["outputs_db"]
        assert quantized.tensors_db == quantized.report["tensors_db"]
        assert quantized.layers_db == quantized.report["sensitivity"]["layers_db"]
        losses = [math.inf if db is None else db for db in quantized.layers_db.values()]
        assert losses == sorted(losses)
        del quantized
        gc.collect()
        assert not path.exists()

    def test_a_model_is_quantized_without_inputs(self, tmp_path: Path) -> None:
        (tmp_path / "dense.onnx").write_bytes(dense_network())
        quantized = octet.quantize(tmp_path / "dense.onnx", weights=4)
        assert quantized.path.name == "dense.int4.onnx"
        assert repr(quantized) == f"<octet.Quantized {quantized.path}: 3 matrix products>"
        assert (quantized.outputs_db, quantized.tensors_db, quantized.layers_db) == ({}, {}, {})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "one of three ways"),
            ({"data": "missing"}, "the file or folder of inputs does not exist: missing"),
            ({"data": pictures(1), "method": "median"}, "method is 'median'"),
            ({"data": pictures(1), "samples": 0}, "samples is 0"),
            ({"data": pictures(1), "budget": "much"}, "'much' is not a share"),
            ({"data": pictures(1), "resize": "fit"}, "'fit' is not a valid Resize"),
            ({"dynamic": True, "labels": [1]}, "labels need the inputs"),
        ],
    )
    def test_an_option_that_cannot_be_used(self, network: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(octet.errors.InvalidInput, match=message):
            octet.quantize(network, **options)

    def test_inputs_of_another_shape(self, network: Path) -> None:
        with pytest.raises(octet.errors.InvalidTensor, match=r"'image' is \[2, 1, 16, 16\]; the model takes"):
            octet.quantize(network, data=pictures(2)[:, :1])

    def test_a_missing_model(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            octet.quantize(tmp_path / "none.onnx", data=pictures(1))


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


@pytest.mark.slow  # like the commands of all pages but the README's
def test_the_programs_of_the_page(url: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "README.md").write_text("# Octet")
    (tmp_path / "float.onnx").write_bytes(residual_network())
    np.save(tmp_path / "samples.npy", pictures(8))
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    printed = []
    for program in programs:
        command = [sys.executable, "-c", program.replace("http://localhost:8080", url)]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=WORK_TIMEOUT_S
        )
        assert ended.returncode == 0, ended.stderr
        printed.append(ended.stdout.splitlines())
    compiled, quantized, served, refused = printed
    assert compiled[-1] == served[-1] == "7"
    assert quantized[0].startswith("<octet.Quantized float.int8.onnx: 9 operators in integers")
    assert refused[0].startswith("unsupported_format ")
