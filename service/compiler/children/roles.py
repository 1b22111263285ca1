"""The roles of the compiler's children. Each runs in its own sandboxed process (see `sandbox` and `child`).

`import` reads the upload and writes typed IR as JSON. `build` checks that IR again, and writes the model's object and
the programs of its kernels. `kernel` compiles one of these programs. `oracle` computes the expected outputs. The roles
exchange files in scratch directories; the parent does not trust their content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm_ffi.serialization import from_json_graph_str

from service.compiler.children import incident, probing
from service.compiler.children.checking_roles import equal_beginning, write_answers
from service.compiler.children.counted import counted
from service.compiler.children.handler import handles
from service.compiler.importers.auto import import_model
from service.compiler.importers.bounds import bounded
from service.compiler.importers.detect import HEAD_BYTES, detect_format
from service.compiler.importers.facts import facts_of
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.outline import outline_of
from service.compiler.kernels.choices import Choices
from service.compiler.kernels.libraries import library_for, peak_for
from service.compiler.kernels.objects import compile_program, program_of
from service.compiler.lowering import codegen, constants
from service.compiler.lowering.call_plan import call_plan
from service.compiler.lowering.passes import Context, Dump, Pass, pipeline
from service.compiler.messages.building import (
    BUILD,
    IMPORT,
    INSPECT,
    KERNEL,
    PASSES,
    BuildRequest,
    BuildResult,
    ImportRequest,
    ImportResult,
    InspectResult,
    KernelRequest,
    PassesRequest,
    PassesResult,
)
from service.compiler.messages.checking import (
    ORACLE,
    PADDING,
    OracleRequest,
    OracleResult,
    PaddingRequest,
    PaddingResult,
)
from service.compiler.messages.files import (
    COMPLETE_GRAPH_FILE,
    CONSTANTS_FILE,
    EXPECTED_FILE,
    GRAPH_FILE,
    MODULE_FILE,
    OBJECT_FILE,
    PLAIN_FILE,
    PROBES_FILE,
    program_file,
    shorter_file,
)
from service.compiler.messages.role import Empty
from service.compiler.qnn import coverage, graph, oracle, printer
from service.compiler.qnn.lengths.bind import Unbound, bind_length
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.numerics.deviations import deviations_of
from service.compiler.qnn.transposes import move_transposes
from service.compiler.sandbox import Report
from service.compiler.targets import codegen_target
from service.core.builds.build import Stage
from service.core.digest import digest_of
from service.core.errors import Unsupported
from service.core.models.arrays import Array
from service.core.models.buckets import pad_inputs
from service.core.models.ranges import StoredRange
from service.core.models.signature import ModelSignature
from service.core.target import parse_target
from service.core.verification.vectors import masked_samples, sample_inputs


@handles(IMPORT)
def import_role(request: ImportRequest, report: Report) -> ImportResult:
    """Imports a model file. Writes `module.json` to the working directory."""
    report.stage(Stage.IMPORT)
    data = request.source.read_bytes()
    incident.about({"format": detect_format(data[:HEAD_BYTES]) or ""})
    imported = _import_model(data, request, report)
    ranges: tuple[StoredRange, ...] = ()
    if request.counts:
        imported, ranges = counted(imported)
    Path(MODULE_FILE).write_text(tvm.ir.save_json(imported.module))
    return ImportResult(
        digest_of(data),
        imported.signature,
        imported.format,
        facts_of(imported),
        probing.probe_count(imported.module, imported.signature),
        ranges,
    )


@handles(INSPECT)
def inspect_role(request: ImportRequest, report: Report) -> InspectResult:
    """Returns the facts of a model file and writes its graph to `graph.txt` and `graph.qnn`.

    Returns an outline instead if Octet cannot compile the model.
    """
    data = request.source.read_bytes()
    try:
        imported = _import_model(data, request, report)
    except Unsupported as error:
        return InspectResult(outline=outline_of(data, error))
    Path(GRAPH_FILE).write_text(printer.text_of(move_transposes(imported.module)))
    Path(COMPLETE_GRAPH_FILE).write_text(printer.complete_text_of(imported.module))
    return InspectResult(facts_of(imported))


@handles(PASSES)
def passes_role(request: PassesRequest, report: Report) -> PassesResult:
    """Runs the passes on a model file. Writes the module after each pass to a text file, whose name begins with a
    number.
    """
    name, mode = parse_target(request.target), get_mode(request.numerics)
    imported = _import_model(request.source.read_bytes(), request, report)
    context = Context(mode, codegen_target(name), library_for(name, mode))
    dump = Dump(Path.cwd(), imported.module)
    pipeline().run(imported.module, context, before=_report_stages(report), after=dump)
    return PassesResult(str(pipeline()))


def _import_model(data: bytes, request: ImportRequest | PassesRequest, report: Report) -> ImportedModel:
    def at(op: str, tensor: str) -> None:
        report.at(stage=Stage.IMPORT, op=op, tensor=tensor)
        incident.importing(op)

    imported = import_model(data, at, request.shapes, request.fixed)
    return replace(imported, signature=bounded(imported.signature, imported.module))


@handles(ORACLE)
def oracle_role(request: OracleRequest, report: Report) -> OracleResult:
    """Computes the expected outputs of `module.json` for the generated inputs, and writes them.

    The oracle computes the imported module, before any pass, and one sample of a batch at a time. The comparison
    therefore covers every pass. If a model keeps state, its inputs are the calls of one sequence.

    For a small model, the oracle also chooses additional inputs (`compiler.children.probing`), and writes them with
    their outputs.
    """
    report.at(stage=Stage.VERIFY)
    batch, signature = request.batch, request.signature
    samples = sample_inputs(signature, request.samples)
    ones = [_select_sample(sample, index, batch) for sample in samples for index in range(batch)]
    module, mode = _load_module(request.module), get_mode(request.numerics)
    incident.about({"numerics": mode.name}, module)
    observer = probing.Observer(news=[0] * len(ones))
    if signature.states:
        answers = oracle.run_sequence(module, mode, ones, [state.first() for state in signature.states])
    else:
        answers = oracle.run_all(module, mode, ones, observer)
    count = request.probes
    probes = probing.probe(module, mode, signature, count, ones, observer) if count else ([], [])
    np.savez_compressed(PROBES_FILE, **dict[str, Any](probing.arrays_of(*probes)))
    whole = [_concatenate(answers[first : first + batch]) for first in range(0, len(answers), batch)]
    write_answers(dict(enumerate(whole)), EXPECTED_FILE)
    return OracleResult({} if signature.states else observer.report())


_BOUND_SAMPLES = 2  # inputs of each length, with a mask of ones and a random one


@handles(PADDING)
def padding_role(request: PaddingRequest, report: Report) -> PaddingResult:
    """Compares modules of one model for several lengths (see `compiler.build.padding`).

    If possible, makes the length a parameter of the longest module, and writes that module to `module.json`. The inputs
    of the shorter modules are padded with zeros and computed by it. Writes the outputs of the shorter modules.
    """
    report.at(stage=Stage.VERIFY)
    module, mode = _load_module(request.module), get_mode(request.numerics)
    shorter = [_load_module(path) for path in request.modules]
    longest, values, equal = request.signature, 0, 0
    bound, reason = _bound(module, shorter[0], mode) if request.can_bind else (None, "the target takes one length")
    if bound is None and (why := _unsafe(module, longest)):
        return PaddingResult(0, 0, f"{why}; the length cannot be bound when the model is called: {reason}")
    for own, signature in zip(shorter, request.signatures, strict=True):
        length = _length_of(signature, longest)
        samples = masked_samples(signature)[:_BOUND_SAMPLES] if bound is not None else masked_samples(signature)
        answers = oracle.run_all(own, mode, samples)
        write_answers(dict(enumerate(answers)), shorter_file(length))
        more = [] if bound is None else [np.array([length], np.int32)]
        # The module with a length takes as long as one of the longest inputs. The artifact computes all samples.
        padded = [[*pad_inputs(each, longest), *more] for each in (samples if bound is None else samples[:1])]
        filled = oracle.run_all(bound or module, mode, padded)
        for short, long in ((a, b) for pair in zip(answers, filled, strict=False) for a, b in zip(*pair, strict=True)):
            values += short.size
            equal += equal_beginning(short, long)
    if bound is not None:
        Path(MODULE_FILE).write_text(tvm.ir.save_json(bound))
    return PaddingResult(values, equal, "", bound is not None)


def _bound(module: tvm.IRModule, shorter: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule | None, str]:
    """Returns the module with the length as a parameter; or None, and the reason."""
    try:
        return bind_length(module, shorter, mode), ""
    except Unbound as unbound:
        return None, str(unbound)


def _length_of(signature: ModelSignature, longest: ModelSignature) -> int:
    """Returns the length of the signature's inputs, which differs from that of `longest`."""
    return next(
        size
        for spec, own in zip(signature.inputs, longest.inputs, strict=True)
        for size, most in zip(spec.shape, own.shape, strict=True)
        if size != most
    )


def _unsafe(module: tvm.IRModule, signature: ModelSignature) -> str:
    """If comparing samples cannot show that padding has no effect, returns the reason; else ""."""
    if any(spec.dtype.kind not in "iu" for spec in signature.inputs):
        return "an input has real values, of which zero may be one"
    if any(spec.bounds is None for spec in signature.inputs):
        return "the file does not state which values its inputs may have"
    if ranges := _ranges(module):
        return f"{ranges} is a range over a whole tensor, which would include the padding"
    return ""


def _ranges(module: tvm.IRModule) -> str:
    """If the model computes a minimum or maximum over all elements of a tensor (for dynamic quantization), returns the
    name of such a tensor; otherwise "".
    """
    for var, value in graph.bindings(graph.main_of(module)):
        name = str(getattr(getattr(value, "op", None), "name", ""))
        if name in ("relax.max", "relax.min") and math.prod(graph.shape_of(var)) == 1 < math.prod(
            graph.shape_of(value.args[0])
        ):
            return repr(str(var.name))
    return ""


@handles(BUILD)
def build_role(request: BuildRequest, report: Report) -> BuildResult:
    """Builds `module.json`.

    Writes the object of the generated functions, the programs of the kernels and the constants to the working
    directory.
    """
    name, mode = parse_target(request.target), get_mode(request.numerics)
    target = codegen_target(name)
    choices = Choices(request.tiles, request.rank)
    context = Context(mode, target, library_for(name, mode, choices), request.batch, request.varying)
    reporting = _report_stages(report)
    imported = _load_module(request.module)
    facts = {"target": name.name, "numerics": mode.name}
    incident.about(facts, imported, lambda module: _run_passes(module, request))
    lowered = pipeline().run(imported, context, before=reporting)
    model, selection = context.model, context.selection
    assert model is not None
    assert selection is not None
    peak = peak_for(name)
    if peak is not None:
        selection.kernels[peak.facts["symbol"]] = peak
    codegen.generate(lowered, target, Path(PLAIN_FILE))
    for symbol, kernel in selection.kernels.items():
        Path(program_file(symbol)).write_text(program_of(kernel))
    report.stage(Stage.CODEGEN, 0.3)
    layout = constants.write(context.constants, Path(CONSTANTS_FILE))
    launches = {symbol: kernel.launch for symbol, kernel in selection.kernels.items() if kernel.launch is not None}
    launched = launches if target.cards else None
    return BuildResult(
        kernels=tuple(sorted(selection.kernels)),
        plan=call_plan(lowered, layout, context.activations, request.states, launched, request.longest),
        coverage={
            **coverage.report(model, context.simplified["tables made"]),
            "simplified": context.simplified,
            "kernels": {**selection.report(), "peak": None if peak is None else dict(peak.facts)},
        },
        tiles=tuple(choices.choices),
        formulas=_formulas(model, request.numerics),
        deviations=tuple(deviations_of(imported, mode)),
    )


def _run_passes(module: tvm.IRModule, request: BuildRequest) -> object:
    """Runs the passes on `module` with the settings of the build."""
    name, mode = parse_target(request.target), get_mode(request.numerics)
    library = library_for(name, mode, Choices(request.tiles, request.rank))
    return pipeline().run(module, Context(mode, codegen_target(name), library, request.batch, request.varying))


@handles(KERNEL)
def kernel_role(request: KernelRequest, report: Report) -> Empty:
    """Compiles the program of a kernel. Writes its object to the working directory."""
    report.at(stage=Stage.CODEGEN, op=request.symbol)
    program, target = request.program.read_text(), codegen_target(parse_target(request.target))
    compile_program(program, request.symbol, target, Path(OBJECT_FILE))
    return Empty()


def _report_stages(report: Report) -> Callable[[Pass], None]:
    """Reports the first stage. Returns a function that is called before each pass, and reports the pass's stage if it
    is new.
    """
    stage = Stage.SELECT
    report.stage(stage)

    def begin(each: Pass) -> None:
        nonlocal stage
        if each.stage is not stage:
            stage = each.stage
            report.stage(stage)
            report.at(stage=stage)

    return begin


def _load_module(path: Path) -> tvm.IRModule:
    """Rebuilds the module of an import child call by call, so that type inference checks every operator again."""
    # `tvm.ir.load_json` would also check for formats of older versions, which takes longer than the reading.
    module = from_json_graph_str(path.read_text())
    return graph.rewrite(module, lambda builder, call, args, operation: graph.with_args(call, args))


def _select_sample(sample: Sequence[Array], index: int, batch: int) -> list[Array]:
    """Returns one sample of a batch. If the batch is 1, returns the whole input, because inputs may have no batch
    dimension.
    """
    return [value[index : index + 1] for value in sample] if batch > 1 else list(sample)


def _concatenate(parts: Sequence[Sequence[Array]]) -> list[Array]:
    return [np.concatenate(outputs) if len(outputs) > 1 else outputs[0] for outputs in zip(*parts, strict=True)]


def _formulas(module: tvm.IRModule, numerics: str) -> dict[str, str]:
    """Summarizes the formula for each type of operator in the model."""
    mode = get_mode(numerics)
    found = (operation for _, _, operation in graph.operations(graph.main_of(module)) if operation is not None)
    return {mode.key(operation): mode.formula(operation).summary for operation in found}
