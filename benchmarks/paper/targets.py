"""Table I of Jain et al.: a quantized model of each framework, compiled for each target.

Each model is small and has recorded outputs of its framework, or its framework computes them here. On a target that
this machine executes or emulates, Octet's outputs are compared with them bit for bit.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.harness.artifacts import NotCompiled, compile_model
from benchmarks.harness.frameworks import dimensions
from benchmarks.harness.home import CHECKOUT
from benchmarks.paper.store import Measurement, Run
from service import runtime
from service.cache import OciLayout
from service.compiler.importers.auto import import_model
from service.core.artifacts.artifact import ArtifactConfig
from service.core.builds.numerics import FBGEMM, MXNET_ONEDNN, ONNXRUNTIME, PT2E, XNNPACK
from service.core.digest import parse_digest
from service.core.models.arrays import Array
from service.core.target import TARGETS, Target, detect_host
from service.core.verification.vectors import sample_inputs
from tests.support import emulated_models, litert, mxnet_models, torchscript
from tests.support.onnx_reference import Reference

PART = "targets"
COMPILED, REFUSED = "compiled", "refused"  # the states of models that were not executed
_FIXTURES = CHECKOUT / "tests" / "fixtures"
_SAMPLES = 4


@dataclass(frozen=True)
class Example:
    """A model of a framework.

    Attributes:
        numerics: the numerics mode that reproduces the framework.
        shape: the shape of the input, if the file leaves it open.
        inputs, outputs: the samples, and the framework's outputs for each.
    """

    framework: str
    path: Path
    numerics: str
    shape: tuple[int, ...]
    inputs: list[list[Array]]
    outputs: list[list[Array]]


def measure(run: Run, before: Sequence[Measurement]) -> Iterator[Measurement]:
    """Measures each example on each target.

    Args:
        before: earlier measurements. Where one of them executed a model, and this machine can only compile it, the
            earlier one stays.
    """
    earlier = {each.name: each for each in before if each.part == PART}
    with tempfile.TemporaryDirectory(prefix="octet-paper-") as scratch:
        for example in examples(Path(scratch)):
            for target in TARGETS:
                values = checked(example, target, Path(scratch, "artifact", example.framework, target.name))
                kept = earlier.get((example.framework, target.name))
                print(f"{example.framework}, {target.name}: {values}", flush=True)
                if kept and is_weaker(values, kept.values):
                    print(f"  the result of {kept.day} stays: {kept.values['state']}", flush=True)
                    continue
                yield run.measurement(PART, (example.framework, target.name), values, {"octet": version("octet-serve")})


def examples(folder: Path) -> Iterator[Example]:
    """Yields a model of each framework. `folder` receives those that are not files of the checkout."""
    digits = CHECKOUT / "examples" / "digits_int8.tflite"
    interpreter = litert.interpreter(digits.read_bytes(), reference=False)
    inputs = _inputs(digits)
    yield Example("TFLite", digits, XNNPACK, (), inputs, [litert.run(interpreter, each) for each in inputs])
    network = _FIXTURES / "onnx" / "mobilenet_v3.qdq.onnx"
    reference = Reference(network, optimized=True)
    inputs = _inputs(network)
    yield Example("ONNX", network, ONNXRUNTIME, (), inputs, [list(reference(each)) for each in inputs])
    for framework, name, numerics, engine in (
        ("PyTorch", "residual.pt", FBGEMM, torchscript.ENGINES[FBGEMM]),
        ("PyTorch, exported", "residual_xnnpack.pt2", PT2E, PT2E),
    ):
        path = _FIXTURES / "torch" / name
        recorded, outputs = torchscript.answers(path, engine)
        yield Example(framework, path, numerics, recorded[0].shape, [[each] for each in recorded], outputs)
    archive = folder / "residual.zip"
    archive.write_bytes(mxnet_models.packed("sg_residual"))
    given, answers = mxnet_models.answers_of("sg_residual")
    inputs = [[each] for each in given]
    yield Example("MXNet", archive, MXNET_ONEDNN, (), inputs, [[each] for each in answers])


def checked(example: Example, target: Target, folder: Path) -> dict[str, str]:
    """Compiles the model for `target`, and compares its outputs with the framework's if they can be computed here.

    Returns `state`: `refused`, `compiled`, `equal`, `equal, emulated`, or the share of equal values; and `detail`.
    """
    options = ["--target", target.name, "--numerics", example.numerics]
    options += ["--input-shape", dimensions(example.shape)] if example.shape else []
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        digest = parse_digest(compile_model(example.path, folder, *options))
    except NotCompiled as error:
        return {"state": REFUSED, "detail": str(error)}
    if not target.missing_on(detect_host()):
        model = runtime.load(folder, digest)
        return {"state": _compared([model.run(each) for each in example.inputs], example.outputs), "detail": ""}
    if reason := _not_emulated(target):
        return {"state": COMPILED, "detail": reason}
    layout = OciLayout.open(folder)
    config = ArtifactConfig.from_json(json.loads(layout.blobs.read(layout.manifest(digest).config.digest)))
    outputs = emulated_models.run(target.name, [folder], config.signature, example.inputs)
    return {"state": f"{_compared(outputs, example.outputs)}, emulated", "detail": ""}


def is_weaker(values: Mapping[str, str], earlier: Mapping[str, str]) -> bool:
    """Returns true if the model was only compiled, and was executed earlier."""
    return values["state"] == COMPILED and earlier["state"] not in (COMPILED, REFUSED)


def _not_emulated(target: Target) -> str:
    """Returns the reason why no emulator of this machine executes the target, or ""."""
    if target.architecture == "x86_64":
        return f"this machine lacks {' '.join(sorted(target.missing_on(detect_host())))}"
    return emulated_models.missing(target.name)


def _compared(actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> str:
    equal = [
        np.asarray(one == other)
        for ours, theirs in zip(actual, expected, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    ]
    if all(each.all() for each in equal):
        return "equal"
    return f"{100 * np.mean(np.concatenate([each.ravel() for each in equal])):.4g} % of values equal"


def _inputs(model: Path) -> list[list[Array]]:
    """Returns random and smooth inputs of a model whose file contains their shape."""
    return [list(each) for each in sample_inputs(import_model(model.read_bytes()).signature, _SAMPLES, seed=1)]
