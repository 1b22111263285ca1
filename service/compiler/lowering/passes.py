"""The pipeline of passes that turns an imported model into scheduled tensor programs and calls of kernels.

A pass takes a module and returns a module. Its other inputs and results are in the `Context`.
Each pass documents what it requires and ensures. `str(PIPELINE)` is `pass_order.text()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tvm

from service.compiler.kernels.group import KernelLibrary
from service.compiler.lowering import arena, codegen, constants
from service.compiler.lowering.gpu import lowering
from service.compiler.lowering.pass_order import ORDER
from service.compiler.lowering.schedule import schedule
from service.compiler.qnn import printer
from service.compiler.qnn.batch import batched
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.joins import join_moves
from service.compiler.qnn.kernels import choose_kernels
from service.compiler.qnn.legalize import legalize
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.passes import run_pass
from service.compiler.qnn.transposes import move_transposes
from service.compiler.select.select import select
from service.compiler.select.selection import Selection
from service.compiler.targets import CodegenTarget, codegen_target
from service.core.artifacts.artifact import Slot
from service.core.builds.build import Stage
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.target import parse_target


@dataclass
class Context:
    """The inputs of passes, and their results besides the module.

    Attributes:
        mode: the numerics mode.
        target: the target to compile for.
        library: the target's hand-written kernels; None if it has none.
        batch: the number of samples in a call.
        varying: for each input, the axes that have the length that the last parameter of `main` contains. Empty if the
            inputs have one length.
        model: the model with this batch, before it is simplified.
        simplified: maps each pass to the names of the tensors that it changed.
        selection: the selected kernels, and how each operator is computed.
        constants: the values of the entry function's parameters that follow the inputs.
        activations: the slots of the entry function's parameters that follow the constants.
    """

    mode: Mode
    target: CodegenTarget
    library: KernelLibrary | None
    batch: int = 1
    varying: Sequence[Sequence[int]] = ()
    model: tvm.IRModule | None = None
    simplified: dict[str, list[str]] = field(default_factory=dict)
    selection: Selection | None = None
    constants: list[Array] = field(default_factory=list)
    activations: tuple[Slot, ...] = ()


Run = Callable[[tvm.IRModule, Context], tvm.IRModule]


@dataclass(frozen=True)
class Pass:
    """A step of the lowering: a named function that transforms a module.

    Attributes:
        name: the name in texts and file names.
        stage: the stage of a build that the pass belongs to.
        run: the function that transforms a module.
    """

    name: str
    stage: Stage
    run: Run

    @property
    def returns_graph(self) -> bool:
        """True if the result is a QNN graph, whose complete text can be parsed. The pass `select` emits calls of
        kernels, which are not part of the module.
        """
        return self.stage is Stage.SELECT and self.name != "select"

    def text_of(self, module: tvm.IRModule) -> str:
        """Returns the text of `module` after this pass.

        For a QNN graph, this is the complete text. With calls of kernels, it is the graph without the values of
        constants, and with tensor programs, it is TVM script.
        """
        if self.returns_graph:
            return printer.complete_text_of(module)
        if self.stage in (Stage.SELECT, Stage.LEGALIZE):
            return printer.text_of(module)
        return str(module.script(show_meta=False)) + "\n"


@dataclass(frozen=True)
class Pipeline:
    """Passes in order. Its text is `module(pass,pass,…)`."""

    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        return f"module({','.join(each.name for each in self.passes)})"

    def run(
        self,
        module: tvm.IRModule,
        context: Context,
        *,
        before: Callable[[Pass], None] = lambda each: None,
        after: Callable[[Pass, tvm.IRModule], None] = lambda each, module: None,
    ) -> tvm.IRModule:
        """Runs all passes on `module` and returns the result.

        Args:
            before: called with each pass before it runs.
            after: called with each pass and its result.
        """
        with tvm.target.Target(dict(context.target.llvm)):
            for each in self.passes:
                before(each)
                module = each.run(module, context)
                after(each, module)
        return module

    def until(self, name: str) -> Pipeline:
        """Returns the pipeline of the passes up to and including `name`."""
        names = [each.name for each in self.passes]
        return Pipeline(self.passes[: names.index(name) + 1])


class Dump:
    """Writes the module after each pass to a folder: `00-import.qnn`, `01-normalize-types.qnn` … `18-legalize.txt` …

    The files `*.qnn` can be compiled, and read by `tools.opt`.
    """

    def __init__(self, folder: Path, module: tvm.IRModule) -> None:
        """Writes the imported `module`, which is the input of the first pass."""
        self._folder, self._written = folder, 0
        self._write("import.qnn", printer.complete_text_of(module))

    def __call__(self, each: Pass, module: tvm.IRModule) -> None:
        self._write(f"{each.name}.{'qnn' if each.returns_graph else 'txt'}", each.text_of(module))

    def _write(self, name: str, text: str) -> None:
        (self._folder / f"{self._written:02}-{name}").write_text(text)
        self._written += 1


_ADDED: dict[str, tuple[str, Run]] = {}  # passes of dialects: name -> the pass before which each runs, and its function


def add_pass(name: str, run: Run, before: str) -> None:
    """Adds a pass of a dialect, which runs before the pass `before` and after those that were added there earlier.

    Raises:
        InvalidInput: Octet has a pass of this name, or none called `before` that takes a graph of `qnn.*` operators.
    """
    graphs = [each.name for each in PIPELINE.passes if each.stage is Stage.SELECT]
    if before not in graphs:
        raise InvalidInput(f"a pass cannot run before {before!r}", hint=f"name one of: {', '.join(graphs)}")
    if name in ORDER:
        raise InvalidInput(f"Octet itself has a pass {name!r}")
    _ADDED[name] = before, run


def pipeline() -> Pipeline:
    """Returns the passes of Octet and of the dialects, in order."""
    passes: list[Pass] = []
    for each in PIPELINE.passes:
        passes += [Pass(name, Stage.SELECT, run) for name, (before, run) in _ADDED.items() if before == each.name]
        passes.append(each)
    return Pipeline(tuple(passes))


def graph_passes() -> dict[str, Pass]:
    """Returns the passes from graph to graph by name, in the order of the pipeline."""
    return {each.name: each for each in pipeline().passes if each.returns_graph}


def run_graph_passes(module: tvm.IRModule, names: Sequence[str], numerics: str, target: str) -> tvm.IRModule:
    """Runs passes from graph to graph, in the order of `names`.

    Args:
        numerics, target: the numerics mode and the target for which the model is compiled.

    Raises:
        InvalidInput: no pass from graph to graph has one of these names.
    """
    context = Context(get_mode(numerics), codegen_target(parse_target(target)), None)
    passes = graph_passes()
    for name in names:
        if name not in passes:
            raise InvalidInput(f"no pass has the name {name!r}", hint=f"the passes are {', '.join(passes)}")
        module = passes[name].run(module, context)
    return module


def _batch(module: tvm.IRModule, context: Context) -> tvm.IRModule:
    context.model = batched(module, context.batch)
    return context.model


def _simplify(name: str) -> Run:
    def run(module: tvm.IRModule, context: Context) -> tvm.IRModule:
        module, context.simplified[name] = run_pass(name, module, context.mode)
        return module

    return run


def _select(module: tvm.IRModule, context: Context) -> tvm.IRModule:
    context.selection = select(module, context.library, [tuple(axes) for axes in context.varying])
    return context.selection.module


def _schedule(module: tvm.IRModule, context: Context) -> tvm.IRModule:
    if not context.target.cards:
        return schedule(module, context.target)
    assert context.selection is not None
    lowered = lowering.lower(module)
    context.selection.kernels.update(lowered.kernels)
    context.selection.inexact.update(lowered.inexact)
    return lowered.module


def _lift_constants(module: tvm.IRModule, context: Context) -> tvm.IRModule:
    module, context.constants = constants.lift(codegen.anchored(module))
    return module


def _lift_activations(module: tvm.IRModule, context: Context) -> tvm.IRModule:
    module, context.activations = arena.lift(module)
    return module


_RUNS: dict[str, Run] = {
    "normalize-types": _simplify("types normalized"),
    "choose-kernels": lambda module, context: choose_kernels(module, context.mode),
    "batch": _batch,
    "move-transposes": lambda module, context: move_transposes(join_moves(module)),
    "decompose": lambda module, context: decompose(module),
    "keep-weights": _simplify("weights kept"),
    "fold-constants": _simplify("constants folded"),
    "join-biases": _simplify("biases joined"),
    "fuse-functions": _simplify("functions fused"),
    "move-pads": _simplify("pads moved"),
    "make-tables": _simplify("tables made"),
    "drop-casts": _simplify("casts dropped"),
    "move-reshapes": _simplify("reshapes moved"),
    "move-strides": _simplify("strides moved"),
    "share-ranges": _simplify("ranges shared"),
    "split-extremes": _simplify("extremes split"),
    "select": _select,
    "legalize": lambda module, context: legalize(module, context.target.operands),
    "canonicalize": lambda module, context: canonicalize(module, context.mode),
    "fuse": lambda module, context: tvm.transform.Sequential(list(codegen.FUSE))(module),
    "schedule": _schedule,
    "lift-constants": _lift_constants,
    "plan-memory": lambda module, context: tvm.transform.Sequential(list(codegen.PLAN))(module),
    "lift-activations": _lift_activations,
}

# The passes of Octet itself. `pipeline` also has those of dialects.
PIPELINE = Pipeline(tuple(Pass(name, stage, _RUNS[name]) for name, stage in ORDER.items()))
