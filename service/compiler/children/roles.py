"""The roles of the compiler's children. Each runs in its own sandboxed process (see `sandbox` and `child`).

`import` reads the upload and writes typed IR as JSON. `build` checks that IR again, and writes the model's object and
the programs of its kernels. `kernel` compiles one of these programs. `oracle` computes the expected outputs. The roles
exchange files in scratch directories; the parent trusts none of their content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm_ffi.serialization import from_json_graph_str

from service.compiler.children import incident, probing
from service.compiler.children.checking_roles import EXPECTED_FILE, PROBES_FILE, write_answers
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
from service.compiler.lowering.passes import PIPELINE, Context, Dump, Pass
from service.compiler.qnn import coverage, graph, oracle, printer
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.deviations import deviations_of
from service.compiler.qnn.transposes import move_transposes
from service.compiler.sandbox import Report
from service.compiler.targets import codegen_target
from service.core.arrays import Array
from service.core.buckets import pad_inputs
from service.core.build import Stage
from service.core.digest import digest_of
from service.core.errors import Unsupported
from service.core.signature import ModelSignature
from service.core.target import parse_target
from service.core.vectors import masked_samples, sample_inputs

Request = Mapping[str, Any]
Result = Mapping[str, Any]

MODULE_FILE = "module.json"
CONSTANTS_FILE = "constants.bin"
OBJECT_FILE = "kernel.o"
PLAIN_FILE = "plain.o"
GRAPH_FILE = "graph.txt"


def import_role(request: Request, report: Report) -> Result:
    """Imports a model file. Writes `module.json` to the working directory; returns the signature and the facts."""
    report.stage(Stage.IMPORT)
    data = Path(request["source"]).read_bytes()
    incident.about({"format": detect_format(data[:HEAD_BYTES]) or ""})
    imported = _import_model(data, request, report)
    Path(MODULE_FILE).write_text(tvm.ir.save_json(imported.module))
    return {
        "source": digest_of(data),
        "signature": imported.signature.to_json(),
        "format": imported.format,
        "facts": facts_of(imported).to_json(),
        "probes": probing.probe_count(imported.module, imported.signature),
    }


def inspect_role(request: Request, report: Report) -> Result:
    """Returns the facts of a model file and writes its graph to `graph.txt`.

    Returns an outline instead if Octet cannot compile the model.
    """
    data = Path(request["source"]).read_bytes()
    try:
        imported = _import_model(data, request, report)
    except Unsupported as error:
        return {"outline": outline_of(data, error).to_json()}
    Path(GRAPH_FILE).write_text(printer.text_of(move_transposes(imported.module)))
    return {"facts": facts_of(imported).to_json()}


def passes_role(request: Request, report: Report) -> Result:
    """Runs the passes on a model file, and writes the module after each pass to a numbered text file."""
    name, mode = parse_target(request["target"]), get_mode(request["numerics"])
    imported = _import_model(Path(request["source"]).read_bytes(), request, report)
    context = Context(mode, codegen_target(name), library_for(name, mode))
    dump = Dump(Path.cwd(), imported.module)
    PIPELINE.run(imported.module, context, before=_report_stages(report), after=dump)
    return {"pipeline": str(PIPELINE)}


def _import_model(data: bytes, request: Request, report: Report) -> ImportedModel:
    def at(op: str, tensor: str) -> None:
        report.at(stage=Stage.IMPORT, op=op, tensor=tensor)
        incident.importing(op)

    imported = import_model(data, at, request.get("shapes"))
    return replace(imported, signature=bounded(imported.signature, imported.module))


def oracle_role(request: Request, report: Report) -> Result:
    """Computes the expected outputs of `module.json` for the generated inputs, and writes them.

    The oracle computes the module as it was imported, one sample of a batch at a time, so that the comparison covers
    every pass. The inputs of a model that keeps state are the calls of one sequence.

    For a small model it also chooses further inputs (`compiler.children.probing`), and writes them with their outputs.

    Returns:
        `reached`: the special cases that the operators met in all inputs (`probing.Observer.report`).
    """
    report.at(stage=Stage.VERIFY)
    batch, signature = request["batch"], ModelSignature.from_json(request["signature"])
    samples = sample_inputs(signature, request["samples"])
    ones = [_select_sample(sample, place, batch) for sample in samples for place in range(batch)]
    module, mode = _load_module(request), get_mode(request["numerics"])
    incident.about({"numerics": mode.name}, module)
    observer = probing.Observer(news=[0] * len(ones))
    if signature.states:
        answers = oracle.run_sequence(module, mode, ones, [state.first() for state in signature.states])
    else:
        answers = oracle.run_all(module, mode, ones, observer)
    count = request["probes"]
    probes = probing.probe(module, mode, signature, count, ones, observer) if count else ([], [])
    np.savez_compressed(PROBES_FILE, **dict[str, Any](probing.arrays_of(*probes)))
    whole = [_concatenate(answers[first : first + batch]) for first in range(0, len(answers), batch)]
    write_answers(dict(enumerate(whole)), EXPECTED_FILE)
    return {"reached": {} if signature.states else observer.report()}


def padding_role(request: Request, report: Report) -> Result:
    """Compares modules of one model at several lengths (see `compiler.build.padding`).

    The inputs of the shorter modules are padded with zeros and computed by the longest module. Returns how many output
    values there are, and how many of them stay equal.
    """
    report.at(stage=Stage.VERIFY)
    module, mode = _load_module(request), get_mode(request["numerics"])
    longest, values, equal = ModelSignature.from_json(request["signature"]), 0, 0
    if ranges := _ranges(module):
        return {"values": 0, "equal": 0, "reason": f"{ranges} takes a range that includes the padding"}
    for path, signature in zip(request["modules"], map(ModelSignature.from_json, request["signatures"]), strict=True):
        samples = masked_samples(signature)
        answers = oracle.run_all(_load_module({"module": path}), mode, samples)
        filled = oracle.run_all(module, mode, [pad_inputs(each, longest) for each in samples])
        for short, long in ((a, b) for pair in zip(answers, filled, strict=True) for a, b in zip(*pair, strict=True)):
            values += short.size
            equal += _equal_beginning(short, long)
    return {"values": values, "equal": equal, "reason": ""}


def _ranges(module: tvm.IRModule) -> str:
    """Returns the name of a minimum or maximum over all elements of a tensor, for dynamic quantization; or ""."""
    for var, value in graph.bindings(graph.main_of(module)):
        name = str(getattr(getattr(value, "op", None), "name", ""))
        if name in ("relax.max", "relax.min") and math.prod(graph.shape_of(var)) == 1 < math.prod(
            graph.shape_of(value.args[0])
        ):
            return repr(str(var.name))
    return ""


def _equal_beginning(short: Array, long: Array) -> int:
    """Counts the values of `short` that are equal to the value of `long` at the same index."""
    beginning = long[tuple(map(slice, short.shape))] if short.ndim == long.ndim else long
    if beginning.shape != short.shape:
        return 0
    return int(np.sum((beginning == short) | (np.isnan(beginning) & np.isnan(short))))


def build_role(request: Request, report: Report) -> Result:
    """Builds `module.json`. Returns the call plan, among others.

    Writes the object of the generated functions, the programs of the kernels and the constants to the working
    directory.
    """
    name, mode = parse_target(request["target"]), get_mode(request["numerics"])
    target = codegen_target(name)
    choices = Choices(request["tiles"], request["rank"])
    context = Context(mode, target, library_for(name, mode, choices), request["batch"])
    reporting = _report_stages(report)
    imported = _load_module(request)
    asked = {"target": name.name, "numerics": mode.name}
    incident.about(asked, imported, lambda module: _run_passes(module, request))
    lowered = PIPELINE.run(imported, context, before=reporting)
    model, selection = context.model, context.selection
    assert model is not None
    assert selection is not None
    peak = peak_for(name)
    if peak is not None:
        selection.kernels[peak.facts["symbol"]] = peak
    codegen.generate(lowered, target, Path(PLAIN_FILE))
    for symbol, kernel in selection.kernels.items():
        Path(f"{symbol}.json").write_text(program_of(kernel))
    report.stage(Stage.CODEGEN, 0.3)
    layout = constants.write(context.constants, Path(CONSTANTS_FILE))
    launches = {symbol: kernel.launch for symbol, kernel in selection.kernels.items() if kernel.launch is not None}
    states, of_card = request["states"], launches if target.cards else None
    return {
        "kernels": sorted(selection.kernels),
        "plan": call_plan(lowered, layout, context.activations, states, of_card).to_json(),
        "coverage": {
            **coverage.report(model, context.simplified["tables made"]),
            "simplified": context.simplified,
            "kernels": {**selection.report(), "peak": None if peak is None else dict(peak.facts)},
        },
        "tiles": choices.made,
        "formulas": _formulas(model, request["numerics"]),
        "deviations": [each.to_json() for each in deviations_of(imported, mode)],
    }


def _run_passes(module: tvm.IRModule, request: Request) -> object:
    """Runs the passes on `module` with the settings of the build."""
    name, mode = parse_target(request["target"]), get_mode(request["numerics"])
    library = library_for(name, mode, Choices(request["tiles"], request["rank"]))
    return PIPELINE.run(module, Context(mode, codegen_target(name), library, request["batch"]))


def kernel_role(request: Request, report: Report) -> Result:
    """Compiles the program of a kernel. Writes its object to the working directory."""
    report.at(stage=Stage.CODEGEN, op=request["symbol"])
    program = Path(request["program"]).read_text()
    compile_program(program, request["symbol"], codegen_target(parse_target(request["target"])), Path(OBJECT_FILE))
    return {}


def _report_stages(report: Report) -> Callable[[Pass], None]:
    """Reports the first stage, and returns a function that reports each new stage when its first pass begins."""
    stage = Stage.SELECT
    report.stage(stage)

    def begin(each: Pass) -> None:
        nonlocal stage
        if each.stage is not stage:
            stage = each.stage
            report.stage(stage)
            report.at(stage=stage)

    return begin


def _load_module(request: Request) -> tvm.IRModule:
    """Rebuilds the module of an import child call by call, so that type inference checks every operator again."""
    # Not `tvm.ir.load_json`, which also checks for formats of older versions, and takes longer for that than to read.
    module = from_json_graph_str(Path(request["module"]).read_text())
    return graph.rewrite(module, lambda builder, call, args, operation: graph.with_args(call, args))


def _select_sample(sample: Sequence[Array], place: int, batch: int) -> list[Array]:
    """Returns one sample of a batch. If the batch is 1, returns all of it: inputs may lack a batch dimension."""
    return [value[place : place + 1] for value in sample] if batch > 1 else list(sample)


def _concatenate(parts: Sequence[Sequence[Array]]) -> list[Array]:
    return [np.concatenate(outputs) if len(outputs) > 1 else outputs[0] for outputs in zip(*parts, strict=True)]


def _formulas(module: tvm.IRModule, numerics: str) -> dict[str, str]:
    """Summarizes the formula for each type of operator in the model."""
    mode = get_mode(numerics)
    found = (operation for _, _, operation in graph.operations(graph.main_of(module)) if operation is not None)
    return {mode.key(operation): mode.formula(operation).summary for operation in found}
