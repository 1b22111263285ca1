"""The compiler's whole pipeline with its real child processes, from a file to a verified artifact.

`make test-all` also builds the other sample model, and for the other targets, in the tests that build for several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service import runtime
from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.compiler.build.steps import Steps
from service.compiler.importers.uploads import upload_of
from service.compiler.messages.checking import PROFILE
from service.compiler.messages.role import Role
from service.core.artifacts.artifact import Report
from service.core.builds.build import BuildCanceled, Stage
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME, XNNPACK
from service.core.builds.options import with_batch
from service.core.digest import Digest, digest_of_file
from service.core.errors import (
    BuildFailed,
    BuildTimedOut,
    InvalidTensor,
    MalformedModel,
    OctetError,
    Unsupported,
    UnsupportedOperator,
    VerificationFailed,
)
from service.core.models.ranges import HEAD, StoredRange
from service.core.provenance import Provenance
from service.core.settings import Settings
from service.core.target import TARGETS, detect_host, parse_target
from tests.support import litert
from tests.support.litert import MODES
from tests.support.onnx_builder import OnnxBuilder
from tests.support.tflite_builder import Quant
from tests.support.tflite_models import conv2d_model

EXAMPLES = Path(__file__).parents[4] / "examples"
INT8, UINT8 = EXAMPLES / "digits_int8.tflite", EXAMPLES / "digits_uint8.tflite"
SAMPLES = [pytest.param(INT8, id="int8"), pytest.param(UINT8, id="uint8", marks=pytest.mark.slow)]
BERT = Path(__file__).parents[3] / "fixtures" / "onnx" / "bert.qdq.onnx"


_OTHERS = [target for target in TARGETS if target.device == "cpu" and not target.runs_on(detect_host())]
ELSEWHERE = [
    pytest.param(target, marks=[pytest.mark.slow] * (number not in (0, len(_OTHERS) - 1)), id=str(target))
    for number, target in enumerate(_OTHERS)
]


class Recorder:
    """A Progress that records its calls, and cancels the build at a given stage."""

    def __init__(self, cancel_at: Stage | None = None) -> None:
        self.stages: list[Stage] = []
        self.lines: list[str] = []
        self.cancel_at = cancel_at

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        if stage is self.cancel_at:
            raise BuildCanceled
        if not self.stages or self.stages[-1] is not stage:
            self.stages.append(stage)

    def log(self, line: str) -> None:
        self.lines.append(line)


def build(
    source: Path,
    folder: Path,
    *,
    numerics: str = LITERT_REFERENCE,
    target: str = "host",
    progress: Recorder | None = None,
    settings: Settings | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[OciLayout, Digest]:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    layout = OciLayout(folder / "store")
    request = CompileRequest(source, digest_of_file(source), parse_target(target), numerics, options or {})
    return layout, compile_model(request, layout, scratch, progress or Recorder(), settings or Settings())


@pytest.mark.parametrize(
    ("source", "numerics"),
    [
        pytest.param(source, mode, marks=[pytest.mark.slow] * (number == index), id=f"{source.stem}-{mode}")
        for number, source in enumerate([UINT8, INT8])
        for index, mode in enumerate(MODES)
    ],
)
def test_the_artifact_computes_the_same_as_litert(source: Path, numerics: str, tmp_path: Path) -> None:
    progress = Recorder()
    layout, digest = build(source, tmp_path, numerics=numerics, progress=progress)
    report = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")
    assert report["verified"] is True
    assert [witness["equal_percent"] for witness in report["witnesses"]] == [100.0, 100.0]
    assert json.loads(layout.attached(digest, Report.COVERAGE) or b"{}")["integer_percent"] == 100.0
    others = Stage.FETCH, Stage.TUNE, Stage.CALIBRATE, Stage.RANK, Stage.MEASURE
    assert progress.stages == [stage for stage in Stage if stage not in others]
    profile = json.loads(layout.attached(digest, Report.PROFILE) or b"{}")
    assert (profile["threads"], profile["machine"]) == (1, detect_host().model_name)
    assert all(call["seconds"] > 0 for call in profile["calls"])

    model = runtime.load(layout, digest)
    reference = litert.interpreter(source.read_bytes(), reference=numerics == LITERT_REFERENCE)
    rng = np.random.default_rng(7)
    for _ in range(100):
        inputs = litert.random_inputs(reference, rng)
        np.testing.assert_array_equal(model(*inputs), litert.run(reference, inputs)[0])


@pytest.mark.parametrize("source", SAMPLES)
def test_an_artifact_that_counts_has_the_outputs_of_the_served_one(source: Path, tmp_path: Path) -> None:
    served = runtime.load(*build(source, tmp_path / "served", numerics=XNNPACK))
    layout, digest = build(source, tmp_path / "counting", numerics=XNNPACK, options={"counts": True})
    counting = runtime.load(layout, digest)
    ranges = [StoredRange.from_json(each) for each in json.loads(layout.attached(digest, Report.RANGES) or b"[]")]
    assert len(ranges) == 8
    rng = np.random.default_rng(3)
    (spec,) = served.signature.inputs
    limits = np.iinfo(spec.dtype)
    for _ in range(50):
        x = rng.integers(limits.min, limits.max + 1, spec.shape).astype(spec.dtype)
        output, *counts = counting.run([x])
        np.testing.assert_array_equal(output, served.run([x])[0])
        assert [int(each[HEAD:].sum()) for each in counts] == [4096, 1024, 1536, 3072, 3072, 1536, 1536, 10]
    report = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")
    assert report["verified"] is True  # the counts of compiled code equal those of the oracle


def test_a_failed_measurement_does_not_affect_the_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Steps.run

    def failing(steps: Steps, role: Role[Any, Any], *arguments: Any, **options: Any) -> Any:
        if role == PROFILE:
            raise BuildTimedOut("the clock stands still")
        return run(steps, role, *arguments, **options)

    monkeypatch.setattr(Steps, "run", failing)
    progress = Recorder()
    layout, digest = build(INT8, tmp_path, progress=progress)
    assert "not profiled: the clock stands still" in progress.lines
    assert layout.attached(digest, Report.PROFILE) is None
    assert json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")["verified"] is True


@pytest.mark.parametrize(
    ("calls", "line"),
    [
        ([{"symbol": "octet_plain_exp2", "seconds": 1.0}], "generated code takes 100 % of the time: exp 100 %"),
        (
            [{"symbol": "octet_plain_exp2"}],
            "not profiled: the profile process returned a malformed result: calls[0].seconds is missing",
        ),
    ],
)
def test_the_profile_is_logged(calls: list[Any], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Steps.run

    def answering(steps: Steps, role: Role[Any, Any], *arguments: Any, **options: Any) -> Any:
        if role == PROFILE:
            times = {"model_seconds": 1.0, "least_model_seconds": 1.0, "peak_macs_per_s": None}
            return role.read_result({"machine": "", "threads": 1, "rounds": 1, **times, "calls": calls})
        return run(steps, role, *arguments, **options)

    monkeypatch.setattr(Steps, "run", answering)
    progress = Recorder()
    build(INT8, tmp_path, progress=progress)
    assert line in progress.lines


def layer(folder: Path, seed: int = 0) -> Path:
    """Writes a TFLite file of one small convolution with random weights."""
    rng, path = np.random.default_rng(seed), folder / f"layer{seed}.tflite"
    weights, bias = rng.integers(-127, 128, (4, 3, 3, 4)).astype(np.int8), rng.integers(-99, 100, 4, np.int32)
    path.write_bytes(conv2d_model((1, 5, 5, 4), weights, bias, Quant(0.1, 3), Quant(0.02), Quant(0.9, -5)))
    return path


@pytest.mark.parametrize("source", [None, pytest.param(INT8, marks=pytest.mark.slow)], ids=["layer", "int8"])
def test_repeating_a_build_gives_the_same_digest(source: Path | None, tmp_path: Path) -> None:
    source = source or layer(tmp_path)
    _, first = build(source, tmp_path / "a", settings=Settings(data_dir=tmp_path / "first"))
    _, second = build(source, tmp_path / "b", settings=Settings(data_dir=tmp_path / "second"))
    assert first == second


@pytest.mark.parametrize("source", SAMPLES)
def test_a_batch_gives_the_outputs_of_its_samples(source: Path, tmp_path: Path) -> None:
    one = runtime.load(*build(source, tmp_path / "one"))
    layout, digest = build(source, tmp_path / "three", options=with_batch(3))
    three = runtime.load(layout, digest)
    assert json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")["verified"] is True
    spec = three.signature.inputs[0]
    assert spec.shape == (3, *one.signature.inputs[0].shape[1:])
    x = np.random.default_rng(3).integers(0, 127, spec.shape).astype(spec.dtype)
    np.testing.assert_array_equal(three(x), np.concatenate([one(x[index : index + 1]) for index in range(3)]))


def test_onnx_runtime_is_a_witness_of_a_model_with_id_lookups(tmp_path: Path) -> None:
    layout, digest = build(BERT, tmp_path, numerics=ONNXRUNTIME)
    witnesses = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")["witnesses"]
    assert [(each["own"], each["equal_percent"]) for each in witnesses] == [(True, 100.0), (False, 100.0)]
    assert witnesses[0]["inputs"] == witnesses[1]["inputs"] >= 9


def test_onnx_runtime_is_a_witness_of_a_model_with_external_data(tmp_path: Path) -> None:
    model, weights = OnnxBuilder(), np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
    x = model.quantized(model.input("x", "float32", [1, 8]), 0.05, 3, "uint8")
    stored = model.dequantized(model.external(weights, "parts/weights.bin", 4), 0.01, 0, "int8")
    product = model.node("MatMul", [model.dequantized(x, 0.05, 3, "uint8"), stored])
    y = model.quantized(product, 0.1, 100, "uint8")
    model.output(model.dequantized(y, 0.1, 100, "uint8"), "float32")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "weights.bin").write_bytes(b"head" + weights.tobytes())
    (tmp_path / "net.onnx").write_bytes(model.build())
    with upload_of(tmp_path / "net.onnx") as upload:
        layout, digest = build(upload, tmp_path, numerics=ONNXRUNTIME)
    witnesses = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")["witnesses"]
    assert [(each["own"], each["equal_percent"]) for each in witnesses] == [(True, 100.0), (False, 100.0)]


def test_cached_outputs_are_not_computed_again(tmp_path: Path) -> None:
    settings, again, source = Settings(data_dir=tmp_path / "data"), Recorder(), layer(tmp_path)
    first, digest = build(source, tmp_path / "a", settings=settings)
    second, same = build(source, tmp_path / "b", settings=settings, progress=again)
    assert same == digest
    assert sorted(line for line in again.lines if "result found in the cache" in line) == [
        "import: result found in the cache",
        "oracle: result found in the cache",
        "reference: result found in the cache",
    ]
    assert second.attached(same, Report.NUMERICS) == first.attached(digest, Report.NUMERICS)
    assert "oracle" not in Provenance.from_bytes(second.attached(same, Report.PROVENANCE) or b"", same).stages_s


def test_a_cached_output_is_used_only_for_its_upload_and_mode(tmp_path: Path) -> None:
    settings, source = Settings(data_dir=tmp_path / "data"), layer(tmp_path)
    build(source, tmp_path / "a", settings=settings)
    other_file, other_mode = Recorder(), Recorder()
    build(layer(tmp_path, seed=1), tmp_path / "b", settings=settings, progress=other_file)
    build(source, tmp_path / "c", settings=settings, numerics=XNNPACK, progress=other_mode)
    assert not any("result found in the cache" in line for line in other_file.lines)
    cached = [line for line in other_mode.lines if "result found in the cache" in line]
    assert cached == ["import: result found in the cache"]


def test_a_file_that_changes_while_it_is_read_is_rejected(tmp_path: Path) -> None:
    request = CompileRequest(INT8, digest_of_file(UINT8), parse_target("host"), LITERT_REFERENCE)
    (tmp_path / "scratch").mkdir()
    settings = Settings(data_dir=tmp_path / "data")
    for _ in range(2):  # the second time would use cached results of the first
        with pytest.raises(BuildFailed, match="changed while it was read"):
            compile_model(request, OciLayout(tmp_path / "store"), tmp_path / "scratch", Recorder(), settings)
        (tmp_path / "scratch" / "import" / "module.json").unlink()
        (tmp_path / "scratch" / "import").rmdir()


@pytest.mark.parametrize("target", ELSEWHERE)
def test_an_artifact_for_other_hardware_is_not_marked_as_verified(target: object, tmp_path: Path) -> None:
    progress = Recorder()
    layout, digest = build(INT8, tmp_path, target=str(target), progress=progress)
    report = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")
    assert report["verified"] is False
    assert "lacks" in report["reason"]
    assert any("not verified" in line for line in progress.lines)
    assert layout.attached(digest, Report.PROFILE) is None
    with pytest.raises(Unsupported, match="lacks"):
        runtime.load(layout, digest)


def test_clones_share_constants_and_agree(tmp_path: Path) -> None:
    layout, digest = build(INT8, tmp_path)
    model = runtime.load(layout, digest)
    x = np.random.default_rng(0).integers(-128, 128, model.signature.inputs[0].shape).astype(np.int8)
    first = model(x)
    np.testing.assert_array_equal(model.clone()(x), first)
    np.testing.assert_array_equal(model(x[:, ::-1][:, ::-1]), first)  # this array is neither contiguous nor aligned


def test_inputs_are_checked(tmp_path: Path) -> None:
    layout, digest = build(INT8, tmp_path)
    model = runtime.load(layout, digest)
    (spec,) = model.signature.inputs
    with pytest.raises(InvalidTensor, match="float32, but the model takes INT8"):
        model(np.zeros(spec.shape, np.float32))
    with pytest.raises(InvalidTensor, match="has shape"):
        model(np.zeros((2, *spec.shape[1:]), np.int8))
    with pytest.raises(InvalidTensor, match="takes 1 inputs, not 0"):
        model()


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", MalformedModel), (b"\0" * 64, MalformedModel), (INT8.read_bytes()[:5000], MalformedModel)],
    ids=["empty", "zeros", "truncated"],
)
def test_a_damaged_file_fails_at_import(content: bytes, error: type[OctetError], tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(content)
    with pytest.raises(OctetError) as caught:
        build(file, tmp_path / "build")
    assert caught.value.stage == Stage.IMPORT
    assert not list((tmp_path / "build" / "store" / "blobs" / "sha256").iterdir())


def test_unsupported_operator_is_named(tmp_path: Path) -> None:
    from tests.support.tflite_builder import ModelBuilder

    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4), np.int8, Quant(1.0)), builder.tensor("y", (1, 4), np.int8, Quant(1.0))
    builder.operator("CONV_3D", [x], [y])
    file = tmp_path / "model.tflite"
    file.write_bytes(builder.build([x], [y]))
    with pytest.raises(UnsupportedOperator, match="CONV_3D") as caught:
        build(file, tmp_path / "build")
    assert caught.value.tensor == "y"
    assert caught.value.hint


def test_canceled_build_stops(tmp_path: Path) -> None:
    with pytest.raises(BuildCanceled):
        build(INT8, tmp_path, progress=Recorder(cancel_at=Stage.CODEGEN))


def test_build_out_of_time(tmp_path: Path) -> None:
    with pytest.raises(BuildTimedOut):
        build(INT8, tmp_path, settings=Settings(build_time_limit_s=0.05))


def test_verification_rejects_a_wrong_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps, replaces the file of expected outputs by that of another model. The library does not compute
    the outputs of that model.
    """
    verify = Steps.verify

    def tamper_and_verify(self, config, library, built, answers, shorter):  # type: ignore[no-untyped-def]
        expected = answers.witnesses[0].file
        with np.load(expected) as data:
            wrong = {name: data[name] ^ 1 for name in data.files}
        np.savez(expected, **wrong)
        return verify(self, config, library, built, answers, shorter)

    monkeypatch.setattr(Steps, "verify", tamper_and_verify)
    with pytest.raises(VerificationFailed, match="does not compute"):
        build(INT8, tmp_path)
