"""The process that judges graphs: `python -m tests.fuzz.graphs.worker FORMAT NUMERICS FINDINGS FIRST END`.

For each seed from FIRST up to END (exclusive), it prints a line of JSON with the result. Before that, it prints a line
whenever the reference runtime starts or ends, because a crash of the reference runtime ends this process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

import numpy as np

from tests.fuzz.graphs.formats import to_bytes
from tests.fuzz.graphs.graph import Graph, Rng
from tests.fuzz.graphs.judge import Judge, Verdict
from tests.fuzz.graphs.minimize import minimized

GENERATORS: Mapping[str, str] = {"onnx": "onnx_graphs", "tflite": "tflite_graphs", "pieces": "pieces"}


def generator(name: str) -> Callable[[Rng], Graph]:
    """Returns the function that draws a graph of this format."""
    draw: Callable[[Rng], Graph] = import_module(f"tests.fuzz.graphs.{GENERATORS[name]}").random_graph
    return draw


def main(format_: str, numerics: str, findings: Path, first: int, end: int) -> None:
    draw, judge = generator(format_), Judge(numerics, _report_reference)
    try:
        for seed in range(first, end):
            graph = draw(np.random.default_rng(seed))
            if graph.inputs and graph.outputs and judge.is_valid(graph):
                _report_reference(False)
                verdict = judge(graph)
            else:
                verdict = Verdict("invalid", "the reference runtime does not run the graph")
            if verdict.is_finding:
                graph, verdict = _minimized(graph, verdict.outcome, judge)
                _write(findings / f"{format_}-{numerics}-{seed}", graph, verdict)
            result = {"seed": seed, "outcome": verdict.outcome, "finding": verdict.is_finding, "text": verdict.text}
            if verdict.is_finding:
                result["text"] = f"{'+'.join(graph.operator_types)}: {verdict.text}"
            print(json.dumps(result), flush=True)
    finally:
        judge.close()


def _report_reference(runs: bool) -> None:
    print(json.dumps({"reference_runs": runs}), flush=True)


def _minimized(graph: Graph, outcome: str, judge: Judge) -> tuple[Graph, Verdict]:
    small = minimized(graph, lambda candidate: judge(candidate).outcome == outcome)
    return small, judge(small)


def _write(folder: Path, graph: Graph, verdict: Verdict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"model.{graph.format}").write_bytes(to_bytes(graph))
    np.savez(folder / "inputs.npz", *verdict.inputs)
    lines = [verdict.outcome, verdict.text, *(_described(graph, index) for index in range(len(graph.operators)))]
    (folder / "finding.txt").write_text("\n".join(lines) + "\n")


def _described(graph: Graph, index: int) -> str:
    operator = graph.operators[index]
    operands = ", ".join(_tensor(graph, name) for name in operator.inputs)
    results = ", ".join(_tensor(graph, name) for name in operator.outputs)
    return f"{results} = {operator.type}({operands}) {dict(operator.options)}"


def _tensor(graph: Graph, name: str) -> str:
    tensor = graph.tensors.get(name)
    if tensor is None:
        return "-"
    small = tensor.data is not None and tensor.data.size == 1
    content = f"={tensor.data.reshape(-1)[0]}" if small and tensor.data is not None else ""
    quantization = f" {tensor.quantization}" if tensor.quantization else ""
    return f"{name}:{tensor.dtype}{list(tensor.shape)}{content}{quantization}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
