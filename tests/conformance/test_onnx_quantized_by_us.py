"""Files that `octet quantize` writes are ordinary QDQ files. ONNX Runtime runs them and gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.quantize.calibration.methods import affine
from service.quantize.file.document import Document
from service.quantize.rewrites.folding import fold_affine, unify
from service.quantize.rewrites.patterns import plan
from service.quantize.rewrites.rewriting import Form, rewrite
from service.quantize.rewrites.uncalibrated import blocked, dynamic
from tests.support import evidence
from tests.support.float_networks import dense_network, pictures, residual_network
from tests.support.float_operators import CASES, MORE, SHAPE, network
from tests.support.onnx_reference import Reference


@pytest.mark.parametrize("storage", ["uint8", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_a_network_has_the_same_answers_in_onnx_runtime(seed: int, storage: str) -> None:
    document = Document(residual_network(seed))
    fold_affine(document)
    planned = plan(document)
    observed = document.serialize([name for name in planned.observed if name != "image"])
    images = pictures(6, seed)
    seen = [Reference(observed, optimized=True)([image[None]]) for image in images]
    names = [name for name in planned.observed if name != "image"]
    types = {
        name: affine(min(v.min() for v in vs), max(v.max() for v in vs), storage)
        for name, vs in zip(names, zip(*seen, strict=True), strict=True)
    }
    rewrite(document, planned, Form({"image": affine(images.min(), images.max(), storage), **types}))
    file = document.serialize()
    imported, reference = import_model(file), Reference(file, optimized=True)
    for image in pictures(4, seed + 9):
        ours = oracle.run(imported.module, get_mode(ONNXRUNTIME), [image[None]])
        evidence.compare(imported, ONNXRUNTIME, [ours], [reference([image[None]])])


# ONNX Runtime computes these operators in float32, in another order or with other functions than Octet. The results
# differ by at most one step of the operator. If a following operator joins several results, its own rounding adds one
# step.
ROUNDED = {
    *("ConvTranspose", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "ReduceMean", "Softplus", "Tanh"),
    "attention",
}


@pytest.mark.parametrize("storage", ["uint8", "int8"])
@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_every_pattern_has_the_same_answers_in_onnx_runtime(name: str, storage: str) -> None:
    rng, document = np.random.default_rng(5), Document(network((CASES | MORE)[name], 5))
    unify(document)
    planned = plan(document)
    types = {each: affine(-rng.uniform(0, 3), rng.uniform(0.5, 3), storage) for each in planned.observed}
    rewrite(document, planned, Form(types))
    file = document.serialize()
    x = rng.normal(0, 2, SHAPE).astype(np.float32)
    imported = import_model(file)
    ours, theirs = oracle.run(imported.module, get_mode(ONNXRUNTIME), [x]), Reference(file, optimized=True)([x])
    step = 2 * max(kind.scale for kind in types.values()) if name in ROUNDED else 0
    evidence.compare(imported, ONNXRUNTIME, [ours], [theirs], step)


@pytest.mark.parametrize("flavour", ["dynamic", "4 bits", "8 bits"])
def test_flavours_without_calibration_are_read_by_onnx_runtime(flavour: str) -> None:
    """ONNX Runtime adds real numbers in another order than Octet."""
    made = dynamic(dense_network()) if flavour == "dynamic" else blocked(dense_network(), int(flavour[0]), 16)
    x = np.random.default_rng(3).normal(0, 1, (1, 6, 40)).astype(np.float32)
    imported = import_model(made.file)
    (ours,) = oracle.run(imported.module, get_mode(ONNXRUNTIME), [x])
    (theirs,) = Reference(made.file, optimized=True)([x])
    evidence.record(imported, ONNXRUNTIME, [[ours]], [[theirs]])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * float(np.abs(theirs).max()))
