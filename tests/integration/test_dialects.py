"""Dialects in real processes: the examples, the commands that take them, and what goes wrong with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octet
from service.core.models.arrays import Array
from tests.support import dialects
from tests.support.onnx_reference import Reference
from tests.support.waiting import WORK_TIMEOUT_S

EVERY_INT8 = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 16)


def run(*arguments: object, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", *map(str, arguments)]
    environment = {**os.environ, **variables}
    process = subprocess.run(command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, env=environment)
    assert process.returncode == status, process.stdout + process.stderr
    return process


def report(*arguments: object, status: int = 0, **variables: str) -> Any:
    return json.loads(run(*arguments, "--json", status=status, **variables).stdout.splitlines()[-1])


def new_file(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def outputs(folder: Path, *inputs: Array) -> Array:
    return np.asarray(octet.load(folder)(*inputs))


def softsign(stored: Array) -> Array:
    """Returns Softsign from scale 0.05 and zero point 3 to scale 1/64 and zero point -7, in float32."""
    real = (stored.astype(np.float32) - 3) * np.float32(0.05)
    curved = real / (1 + np.abs(real))
    return np.asarray(np.clip(np.rint(curved * 64) - 7, -128, 127), np.int8)


class TestExamples:
    @pytest.mark.slow
    def test_python_takes_dialects_for_one_call(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "model.tflite", dialects.tflite_softsign())
        made = octet.compile(model, dialects=[dialects.SOFTSIGN])
        assert np.asarray(made.load()(EVERY_INT8)).tolist() == softsign(EVERY_INT8).tolist()
        with pytest.raises(octet.errors.UnsupportedOperator) as refused:
            octet.compile(model)
        assert refused.value.op == "CUSTOM(FlexSoftsign) #0"

    @pytest.mark.slow  # `make test` compiles the same formula from a TFLite file
    def test_softsign_of_onnx_equals_onnx_runtime(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "model.onnx", dialects.onnx_softsign())
        run("compile", model, "--dialect", dialects.SOFTSIGN, "--output", tmp_path / "out")  # 0: the outputs are equal
        assert outputs(tmp_path / "out", EVERY_INT8).tolist() == softsign(EVERY_INT8).tolist()
        (expected,) = Reference(model.read_bytes(), optimized=False)([EVERY_INT8])
        assert expected.tolist() == softsign(EVERY_INT8).tolist()

    def test_softsign_of_tflite_is_a_table(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "model.tflite", dialects.tflite_softsign())
        refused = report("compile", model, "--output", tmp_path / "out", status=1)["error"]
        assert (refused["code"], refused["op"]) == ("unsupported_operator", "CUSTOM(FlexSoftsign) #0")
        run("compile", model, "--dialect", dialects.SOFTSIGN, "--output", tmp_path / "out")
        assert outputs(tmp_path / "out", EVERY_INT8).tolist() == softsign(EVERY_INT8).tolist()
        run("explain", model, "--dialect", dialects.SOFTSIGN, "--passes", tmp_path / "passes")
        assert "qnn.table" in next((tmp_path / "passes").glob("*-make-tables.qnn")).read_text()

    @pytest.mark.slow  # tests/unit/compiler/dialects/test_epilogues.py compiles such layers
    def test_a_fused_layer_is_one_kernel(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "model.onnx", dialects.curved_convolution())
        run("compile", model, "--dialect", dialects.FUSED, "--accept-differences", "--output", tmp_path / "out")
        (expected,) = Reference(model.read_bytes(), optimized=False)([dialects.reals()])
        assert np.abs(outputs(tmp_path / "out", dialects.reals()) - expected).max() <= 1 / 64  # one step
        run("explain", model, "--dialect", dialects.FUSED, "--passes", tmp_path / "passes")
        selected = next((tmp_path / "passes").glob("*-select.txt")).read_text()
        assert "octet_conv" in selected
        assert "softsign" not in selected.partition("def main")[2].replace("octet_conv", "")

    def test_an_accelerator_is_simulated_bit_for_bit(self, tmp_path: Path) -> None:
        content, weight, bias = dialects.convolution()
        model = new_file(tmp_path / "model.onnx", content)
        run("compile", model, "--dialect", dialects.ACCELERATOR, "--accept-differences", "--output", tmp_path / "out")
        shape = (1, dialects.CHANNELS, dialects.SIZE, dialects.SIZE)
        x = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
        windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.int64) - 3, (3, 3), axis=(1, 2))
        sums = np.einsum("chwij,ocij->ohw", windows, weight.astype(np.int64)) + bias[:, None, None]
        weight_scales = (0.01 / np.arange(1, 17)).astype(np.float32).astype(np.float64)
        fractions, exponents = np.frexp(float(np.float32(0.05)) * weight_scales[:, None, None])
        factors = np.minimum(np.rint(fractions * 2**15), 2**15 - 1).astype(np.int64)
        products = np.clip(sums >> 4, -(2**15), 2**15 - 1) * factors
        expected = np.clip((products >> (11 - exponents)) - 5, -128, 127)
        assert outputs(tmp_path / "out", x)[0].tolist() == expected.tolist()
        assert len(np.unique(expected)) > 20

    def test_networks_in_json_are_imported(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "network.json", dialects.JSON_FILE)
        run("compile", model, "--dialect", dialects.JSON_NETWORK, "--output", tmp_path / "out")
        # sums of [5 - 3, 8 - 3] with scale 0.125, halves away from zero
        assert outputs(tmp_path / "out", np.array([[5, 8]], np.int8)).tolist() == [[-1, 17, 25]]
        damaged = new_file(tmp_path / "damaged.json", '{"network": 1, "input": 3}')
        error = report("inspect", damaged, "--dialect", dialects.JSON_NETWORK, status=1)["error"]
        assert error["code"] == "malformed_model"
        assert "the importer of network failed" in error["message"]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "file", [dialects.SOFTSIGN, dialects.FUSED, dialects.ACCELERATOR], ids=lambda file: file.stem
    )
    def test_every_operator_is_proven(self, file: Path) -> None:
        proofs = json.loads(run("dialect", "prove", file, "--json").stdout)
        assert sum(proof["compared"] for proof in proofs) > 4000
        assert all(proof["different"] == 0 for proof in proofs)


@pytest.mark.slow
class TestCommands:
    def test_a_float_network_is_quantized(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "model.onnx", dialects.float_network())
        np.save(tmp_path / "data.npy", np.random.default_rng(3).normal(0, 1, (32, 16)).astype(np.float32))
        made = tmp_path / "quantized.onnx"
        given = ("--data", tmp_path / "data.npy", "--output", made)
        run("quantize", model, *given, "--dialect", dialects.SOFTSIGN)
        text = run("inspect", made, "--graph", "--dialect", dialects.SOFTSIGN).stdout
        assert "qnn.softsigns.softsign" in text
        run("compile", made, "--dialect", dialects.SOFTSIGN, "--output", tmp_path / "out")
        x = np.load(tmp_path / "data.npy")[:1]
        (expected,) = Reference(made.read_bytes(), optimized=False)([x])
        np.testing.assert_allclose(outputs(tmp_path / "out", x), expected, rtol=1e-5)  # sums of float32

    def test_a_simulated_form_replaces_a_subgraph_before_quantization(self, tmp_path: Path) -> None:
        file = new_file(tmp_path / "curves.py", dialects.QUICK_GELU)
        model = new_file(tmp_path / "model.onnx", dialects.float_network("quick"))
        np.save(tmp_path / "data.npy", np.random.default_rng(3).normal(0, 1, (32, 16)).astype(np.float32))
        made, x = tmp_path / "quantized.onnx", np.load(tmp_path / "data.npy")[:1]
        run("quantize", model, "--data", tmp_path / "data.npy", "--output", made, "--dialect", file)
        assert "qnn.curves.quick" in run("inspect", made, "--graph", "--dialect", file).stdout
        run("compile", made, "--dialect", file, "--output", tmp_path / "out")
        (expected,) = Reference(model.read_bytes(), optimized=False)([x])
        np.testing.assert_allclose(outputs(tmp_path / "out", x), expected, atol=0.05 * np.abs(expected).max())

    def test_show_lists_what_a_dialect_adds(self) -> None:
        (described,) = json.loads(run("dialect", "show", dialects.JSON_NETWORK, "--json").stdout)
        assert (described["name"], [each["name"] for each in described["formats"]]) == ("networks", ["network"])

    def test_a_wrong_proof_is_a_failure(self, tmp_path: Path) -> None:
        """The check refuses every type, so nothing is compared."""
        file = new_file(
            tmp_path / "never.py",
            "from octet import qnn\n"
            "def check(in_type, out_type):\n    raise ValueError('never')\n"
            "@qnn.Dialect('never').integer(check=check)\n"
            "def same(q, in_type, out_type):\n    return q\n",
        )
        proofs = json.loads(run("dialect", "prove", file, "--target", "host", "--json", status=1).stdout)
        assert {proof["refusal"] for proof in proofs} == {"qnn.never.same: never"}


@pytest.mark.slow
class TestFaults:
    def test_the_error_of_a_file_names_its_line(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "model.onnx", dialects.onnx_softsign())
        file = new_file(tmp_path / "broken.py", "from octet import qnn\n\nqnn.Dialect('broken').real(onnx=1 / 0)\n")
        error = report("compile", model, "--dialect", file, "--output", tmp_path / "out", status=1)["error"]
        assert error["message"] == "the dialect broken failed at broken.py:3: ZeroDivisionError: division by zero"

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("return x if x > 0 else 0", "write where(condition, a, b), not if"),
            ("return x + 'a'", "a formula cannot compute with 'a'"),
            ("return x > 0", "the formula must return float32, not bool"),
            ("return math.exp(x)", "the formula failed: TypeError"),
        ],
    )
    def test_a_formula_that_cannot_be_traced_is_refused(self, body: str, message: str, tmp_path: Path) -> None:
        text = f"import math\nfrom octet import qnn\n@qnn.Dialect('mine').real()\ndef curve(x):\n    {body}\n"
        error = report("dialect", "show", new_file(tmp_path / "mine.py", text), status=1)["error"]
        assert message in error["message"]
        assert "mine.curve" in error["message"]

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        model = new_file(tmp_path / "model.onnx", dialects.onnx_softsign())
        error = report("inspect", model, OCTET_DIALECTS=str(tmp_path / "gone.py"), status=1)["error"]
        assert error["code"] == "invalid_input"
        assert "gone.py is not a file" in error["message"]

    def test_a_changed_file_is_another_build(self, tmp_path: Path) -> None:
        """A cached artifact of the first formula would answer for the second one."""
        model = new_file(tmp_path / "model.onnx", dialects.onnx_softsign())
        file, text = tmp_path / "mine.py", dialects.SOFTSIGN.read_text()
        answers = []
        for number, formula in enumerate(("x / (1 + abs(x))", "x / (2 + abs(x))")):
            file.write_text(text.replace("x / (1 + abs(x))", formula))
            given = ("--dialect", file, "--accept-differences", "--output", tmp_path / f"out{number}")
            run("compile", model, *given)
            answers.append(outputs(tmp_path / f"out{number}", EVERY_INT8).tolist())
        assert answers[0] == softsign(EVERY_INT8).tolist() != answers[1]


def test_an_installed_package_is_a_dialect(tmp_path: Path) -> None:
    """The processes of a build find only installed packages, so the test needs a Python environment."""
    venv.create(tmp_path / "venv", with_pip=False)
    packages = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    (packages / "octet.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    info = packages / "curves-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: curves\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[octet.operators]\ncurves = curves\n")
    (packages / "curves.py").write_text(dialects.SOFTSIGN.read_text())
    model = new_file(tmp_path / "model.tflite", dialects.tflite_softsign())

    def inspect(name: str) -> subprocess.CompletedProcess[str]:
        command = [str(tmp_path / "venv" / "bin" / "python"), "-m", "service.cli", "inspect", str(model), "--graph"]
        environment = {**os.environ, "OCTET_DIALECTS": name}
        return subprocess.run(command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, env=environment)

    found = inspect("curves")
    assert "qnn.softsigns.softsign" in found.stdout, found.stderr
    assert "no installed package has the dialect 'others'" in inspect("others").stderr
