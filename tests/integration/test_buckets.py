"""A BERT with a dynamic number of tokens, created with PyTorch and ONNX Runtime's tools, and built for several
lengths.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service import runtime
from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.core.artifacts.artifact import ARTIFACT_TYPE, Report
from service.core.builds.options import with_sizes
from service.core.digest import Digest, digest_of_file
from service.core.errors import InvalidTensor, NotFound, Unsupported
from service.core.models.arrays import Array
from service.core.settings import Settings
from service.core.target import parse_target
from service.runtime.bucketed import BucketedModel
from tests.support.build_caches import share_caches
from tests.support.compiled import Unreported
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

DATA = Path(__file__).parents[1] / "fixtures" / "lengths"
SIZES = (4, 8)
WORDS = 40


def compiled(kind: str, folder: Path, sizes: int | list[int]) -> list[Digest]:
    """Compiles `bert.{kind}.onnx` for each of `sizes` into the layout `folder`."""
    return compiled_file(DATA / f"bert.{kind}.onnx", folder, sizes, ("input_ids", "attention_mask"))


def compiled_file(source: Path, folder: Path, sizes: int | list[int], names: Sequence[str]) -> list[Digest]:
    """Compiles `source`, whose inputs `names` are `[1, sizes]`."""
    layout, digests = OciLayout(folder / "store"), list[Digest]()
    for options in with_sizes([1], {name: [1, sizes] for name in names}):
        scratch = folder / f"scratch-{sizes}-{len(digests)}"
        scratch.mkdir(parents=True)
        request = CompileRequest(source, digest_of_file(source), parse_target("host"), "onnxruntime", options)
        share_caches(folder)
        settings = Settings(data_dir=folder, allow_unsandboxed=True)
        digests.append(compile_model(request, layout, scratch, Unreported(), settings))
    return digests


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    compiled("static", folder, list(SIZES))
    return folder / "store"


def random_inputs(length: int, seed: int = 0) -> tuple[Array, Array]:
    """Returns token ids, and a mask that hides some of them but never the first one."""
    rng = np.random.default_rng(seed)
    mask = rng.integers(0, 2, (1, length))
    mask[:, 0] = 1
    return rng.integers(3, WORDS, (1, length)), mask if seed else np.ones_like(mask)


def padding(layout: OciLayout, digest: Digest) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")["padding"]
    return report


@pytest.mark.parametrize("length", [5, *(pytest.param(length, marks=pytest.mark.slow) for length in (1, 3, 7))])
def test_a_padded_input_gives_the_output_of_a_build_for_its_length(static: Path, length: int, tmp_path: Path) -> None:
    compiled("static", tmp_path, length)
    own, model = runtime.load(tmp_path / "store"), runtime.load_model(static)
    for seed in range(8):
        ids, mask = random_inputs(length, seed)
        np.testing.assert_array_equal(model(ids, mask), own(ids, mask))


def test_outputs_are_close_to_those_of_the_framework(static: Path) -> None:
    reference, model = Reference(DATA / "bert.static.onnx", optimized=False), runtime.load_model(static)
    for length in (2, 4, 7, 8):
        ids, mask = random_inputs(length, length)
        (wanted,) = reference([ids, mask])
        # ONNX Runtime adds real values in another order than Octet, which changes values near 4 by a few units in the
        # last place of float32.
        np.testing.assert_allclose(model(ids, mask), wanted, rtol=0, atol=2e-6)


def test_the_model_has_dynamic_dimensions(static: Path) -> None:
    signature = runtime.load_model(static).signature
    assert [spec.shape for spec in (*signature.inputs, *signature.outputs)] == [(1, -1), (1, -1), (1, -1, 16)]
    assert [each.inputs[0].shape[1] for each in signature.buckets] == list(SIZES)
    assert all(each.pads for each in signature.buckets)


def test_every_bucket_is_verified_and_reports_its_padding(static: Path) -> None:
    layout = OciLayout.open(static)
    digests = [entry.digest for entry in layout.index() if entry.artifact_type == ARTIFACT_TYPE]
    assert [padding(layout, digest)["lengths"] for digest in digests] == [[1, 2, 3], [5, 6, 7]]
    for digest in digests:
        assert json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")["verified"] is True
        report = padding(layout, digest)
        assert report["exact"] is True
        assert report["bound"] is True
        assert report["equal"] == report["values"] > 0


def test_ranges_over_all_tokens_do_not_include_the_padding(tmp_path: Path) -> None:
    """Dynamic quantization computes its scales from all tokens of the input."""
    digests = compiled("dynamic", tmp_path, [4, 8])
    layout, model = OciLayout.open(tmp_path / "store"), runtime.load_model(tmp_path / "store")
    assert [padding(layout, digest)["bound"] for digest in digests] == [True, True]
    reference = Reference(DATA / "bert.dynamic.onnx", optimized=False)
    for length in (1, 3, 5, 8):
        ids, mask = random_inputs(length, length)
        (wanted,) = reference([ids, mask])
        np.testing.assert_allclose(model(ids, mask), wanted, rtol=0, atol=2e-6)
    with pytest.raises(InvalidTensor) as caught:
        model(*random_inputs(9))
    assert caught.value.hint == "it is built for [1, 4], [1, 8], and shorter ones are filled up"


def test_a_single_bucket_serves_shorter_inputs(tmp_path: Path) -> None:
    """Until the other buckets are built, a model has only the smallest."""
    (digest, _) = compiled("dynamic", tmp_path / "both", [4, 8])
    stored = OciLayout.open(tmp_path / "both" / "store")
    model = BucketedModel([runtime.load(stored, digest)])
    assert [spec.shape for spec in (*model.signature.inputs, *model.signature.outputs)] == [
        (1, -1),
        (1, -1),
        (1, -1, 16),
    ]
    reference = Reference(DATA / "bert.dynamic.onnx", optimized=False)
    for length in (1, 3, 4):
        ids, mask = random_inputs(length, length)
        (wanted,) = reference([ids, mask])
        np.testing.assert_allclose(model(ids, mask), wanted, rtol=0, atol=2e-6)


def test_a_model_that_depends_on_the_length_is_refused_with_the_sizes_to_list(tmp_path: Path) -> None:
    model = OnnxBuilder()
    x = model.node("Mul", [model.input("x", "float32", [1, "n"]), model.constant(np.float32(2))])
    model.node("CumSum", [x, model.constant(np.int64(1))], outputs=[model.output("y", "float32")], reverse=1)
    (tmp_path / "sums.onnx").write_bytes(model.build())
    with pytest.raises(Unsupported, match="depend on the length") as caught:
        compiled_file(tmp_path / "sums.onnx", tmp_path, [0, 16], ["x"])
    assert caught.value.hint == "list the lengths instead: --input-shape 'x=1x[8,12,16]'"


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_range_is_one_build_for_every_length(kind: str, tmp_path: Path) -> None:
    (digest,) = compiled(kind, tmp_path, [0, 16])
    layout, model = OciLayout.open(tmp_path / "store"), runtime.load_model(tmp_path / "store")
    assert [spec.shape for spec in (*model.signature.inputs, *model.signature.outputs)] == [
        (1, -1),
        (1, -1),
        (1, -1, 16),
    ]
    assert padding(layout, digest)["bound"] is True
    assert padding(layout, digest)["lengths"] == [1, 11, 12, 15]
    reference = Reference(DATA / f"bert.{kind}.onnx", optimized=False)
    for length in (16, 1, 2, 3, 5, 13):  # the longest first, so that memory contains its values
        ids, mask = random_inputs(length, length)
        (wanted,) = reference([ids, mask])
        np.testing.assert_allclose(model(ids, mask), wanted, rtol=0, atol=2e-6)


@pytest.mark.slow
def test_artifacts_of_several_models_are_not_buckets_of_one(static: Path, tmp_path: Path) -> None:
    compiled("static", tmp_path, [4, 8])
    compiled("static", tmp_path, 4)
    with pytest.raises(NotFound, match="holds 3 artifacts"):
        runtime.load_model(tmp_path / "store")
    with pytest.raises(NotFound, match="holds 2 artifacts"):
        runtime.load(static)
