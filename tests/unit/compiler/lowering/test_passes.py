"""The effect of each pass on a small model: `passes/NAME.txt` contains the text before and after the pass. The oracle
computes the same from both, if both are models.

Before the passes that emit tensor programs, the text is that of a model, and the test runs only the pass on it.
`passes/product.qnn` is the model for the passes after `canonicalize`.

`python -m tests.unit.compiler.lowering.test_passes` rewrites the texts after the passes. Review the difference before
you commit it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi

from service.compiler.kernels.libraries import library_for
from service.compiler.lowering import pass_order, toolchain
from service.compiler.lowering.passes import PIPELINE, Context, Dump, Pass, Pipeline
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.defined import Definition, define
from service.compiler.qnn.parser import parse_module
from service.compiler.targets import codegen_target
from service.core.builds.build import Stage
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.target import parse_target
from tests.support.qnn_text import random_inputs

FOLDER = Path(__file__).with_name("passes")
SEPARATOR = "---- becomes ----\n"
TARGET, MODE = parse_target("x86-64-v4+vnni"), get_mode(LITERT_REFERENCE)
BATCH = 2
PASSES = {each.name: each for each in PIPELINE.passes}

# The function in the model of `fuse-functions`.
define(Definition("example.softsign", lambda x: x / (1 + abs(x)), 1, {}, takes_integers=False))


def context_of(name: str) -> Context:
    """Returns the context in which a pass runs.

    `legalize` runs without a kernel library, so that all operators are left for it. For `batch`, a call has two
    samples.
    """
    library = None if name == "legalize" else library_for(TARGET, MODE)
    return Context(MODE, codegen_target(TARGET), library, BATCH if name == "batch" else 1)


def model_before(name: str) -> tvm.IRModule:
    """Returns the model in the file of a pass."""
    return parse_module((FOLDER / f"{name}.txt").read_text().split(SEPARATOR)[0])


def text_of(name: str) -> str:
    """Runs a pass on its model, and returns the text before and after the pass.

    Digests are removed from the names of kernels, because they do not show what the pass does.
    """
    if PASSES[name].stage is Stage.CODEGEN:
        texts: list[str] = []
        model = parse_module((FOLDER / "product.qnn").read_text())
        PIPELINE.until(name).run(model, context_of(name), after=lambda each, module: texts.append(each.text_of(module)))
        return SEPARATOR.join(texts[-2:])
    after = Pipeline((PASSES[name],)).run(model_before(name), context_of(name))
    before = (FOLDER / f"{name}.txt").read_text().split(SEPARATOR)[0]
    return before + SEPARATOR + re.sub(r"(octet_[a-z]+)_[0-9a-f]{16}", r"\1", PASSES[name].text_of(after))


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_changes_the_model_as_in_its_file(name: str) -> None:
    assert text_of(name) == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_changes_its_model(name: str) -> None:
    before, after = (FOLDER / f"{name}.txt").read_text().split(SEPARATOR)
    assert before != after


@pytest.mark.parametrize("name", [each.name for each in PIPELINE.passes if each.returns_graph])
def test_the_models_before_and_after_a_pass_compute_the_same(name: str) -> None:
    before, after = map(parse_module, (FOLDER / f"{name}.txt").read_text().split(SEPARATOR))
    calls = random_inputs(before, BATCH)
    # `batch` joins the samples of all calls.
    together = [np.concatenate(each) for each in zip(*calls, strict=True)]
    expected = [oracle.run(before, MODE, values) for values in calls]
    if name == "batch":
        got = [oracle.run(after, MODE, together)]
        expected = [[np.concatenate(each) for each in zip(*expected, strict=True)]]
    else:
        got = [oracle.run(after, MODE, values) for values in calls]
    for one, other in zip(expected, got, strict=True):
        assert [each.tolist() for each in one] == [each.tolist() for each in other]


def test_the_pipeline_prints_as_the_text_in_the_key_of_every_build() -> None:
    assert str(PIPELINE) == pass_order.text() == toolchain.fingerprint()["passes"]


def test_passes_are_announced_in_order() -> None:
    begun: list[Pass] = []
    PIPELINE.run(model_before("select"), context_of("select"), before=begun.append)
    assert tuple(begun) == PIPELINE.passes


def test_a_dump_is_a_numbered_file_for_each_pass(tmp_path: Path) -> None:
    model = model_before("select")
    PIPELINE.run(model, context_of("select"), after=Dump(tmp_path, model))
    names = sorted(path.name for path in tmp_path.iterdir())
    graphs = ["import", *(each.name for each in PIPELINE.passes if each.returns_graph)]
    order = ["import", *pass_order.ORDER]
    assert names == [f"{index:02}-{name}.{'qnn' if name in graphs else 'txt'}" for index, name in enumerate(order)]


def test_a_file_of_the_dump_continues_the_pipeline(tmp_path: Path) -> None:
    model = model_before("move-strides")
    final = PIPELINE.run(model, context_of("select"), after=Dump(tmp_path, model))
    index = 1 + max(index for index, each in enumerate(PIPELINE.passes) if each.returns_graph)
    rest = Pipeline(PIPELINE.passes[index:])
    again = rest.run(parse_module(next(tmp_path.glob("*-split-extremes.qnn")).read_text()), context_of("select"))
    assert tvm_ffi.structural_equal(again, final)


if __name__ == "__main__":
    for name in PASSES:
        (FOLDER / f"{name}.txt").write_text(text_of(name))
