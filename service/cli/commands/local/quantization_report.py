"""The report of `octet quantize` on the terminal: the sizes, the accuracy, the noise and the cost of each layer."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from service.cli.output import Output
from service.cli.quantities import duration
from service.cli.tables import Table, number, text

_SHOWN = 10  # the number of noisiest tensors to show
_RAISED = {"wide": "of 16x8", "bfloat16": "in bfloat16", "kept": "kept in float"}  # member of the report -> its text


def show(output: Output, document: dict[str, Any]) -> None:
    """Shows the report of a quantization.

    Args:
        document: the report, and the path of the quantized model as its `output`.
    """
    size = f"{document['output']}: {_size(document['bytes'])}"
    if (layers := document.get("layers")) is not None:
        how = "in integers" if document["weights"] is None else f"with weights of {document['weights']} bits"
        output.show(f"{size}; {len(layers)} matrix products {how}")
        return
    raised = ((len(document[name]), how) for name, how in _RAISED.items())
    forms = [f"{document['quantized']} operators in integers", *(f"{count} {how}" for count, how in raised if count)]
    output.show(f"{size}; {', '.join(forms)}, by {document['method']} of {document['inputs']} inputs")
    if held_out := document.get("held_out"):
        output.show(f"measured on {held_out['inputs']} held-out inputs of {held_out['data']}:")
    elif document.get("same_class") or document.get("accuracy"):
        output.show("measured on the calibration inputs; --validate measures on others:")
    if same := document.get("same_class"):
        output.show(_line("same class", same))
    for kind, counted in document.get("accuracy", {}).items():
        output.show(_line(f"{kind} right", counted))
    table = Table(
        text("tensor"), number("signal to noise"), title="Noise of the quantized model, the worst tensors first"
    )
    noisy = sorted(document["tensors_db"].items(), key=lambda each: _decibels(each[1]))[:_SHOWN]
    for name, value in (*document["outputs_db"].items(), *noisy):
        kind = "output " if name in document["outputs_db"] else ""
        table.add(Text(kind + name), _noise(value))
    output.show(table)
    if costs := document.get("sensitivity"):
        output.show(*_sensitivity(costs, "right" if "accuracy" in document else "same class"))
        if bound := costs.get("latency_budget"):
            output.show(*_latency_notes(bound))
    for each in document["float"]:
        output.show(f"  in float     {each['operators']} {each['op_type']}: {each['reason']}")


def _size(sizes: dict[str, int]) -> str:
    """Compares the quantized file's size with the size that the float model has as ONNX, so that both are sizes of ONNX
    files.

    A server of an older version sends the size of the float model's own file, and no `source`.
    """
    small, large = sizes["quantized"], sizes["float"]
    times = f"{large / small:.2f} times smaller" if small <= large else f"{small / large:.2f} times larger"
    if "source" not in sizes:
        return f"{small:,} bytes, {times} than the float model's file"
    return f"{small:,} bytes, {times} than the float model as ONNX ({large:,} bytes)"


def _sensitivity(costs: dict[str, Any], what: str) -> tuple[Table, Table]:
    layers = Table(
        text("layer"),
        number("output, with it alone in integers"),
        title="Loss caused by each layer, the worst first",
    )
    for name, value in list(costs["layers_db"].items())[:_SHOWN]:
        layers.add(Text(name), _noise(value))
    times = ["latency"] if "latency_budget" in costs else []
    narrow = any(point["bfloat16"] for point in costs["curve"])
    kinds = {"kept": "in float", **({"bfloat16": "in bfloat16"} if narrow else {"wide": "of 16x8"})}
    headings = (*kinds.values(), what, "output", *times)
    curve = Table(*map(number, headings), title="Loss of mixtures: the worst layers raised")
    for point in costs["curve"]:
        counts = (str(len(point[kind])) for kind in kinds)
        taken = [duration(point["latency_ms"] / 1e3)] if times else []
        curve.add(*counts, f"{100 * point['share']:.1f} %", _noise(point["output_db"]), *taken)
    return layers, curve


def _latency_notes(latency: dict[str, Any]) -> list[str]:
    limit = f"{latency['asked']} ({duration(latency['limit_ms'] / 1e3)})"
    if not latency["met"]:
        return [f"No mixture of layers is within {limit}: all layers that can be are in integers."]
    lost = "" if latency["budget_met"] else " No such mixture meets --budget; this one loses the fewest answers."
    return [f"This mixture of layers is within {limit}.{lost}"]


def _noise(value: float | None) -> str:
    return "no noise" if value is None else f"{value:.1f} dB"


def _decibels(value: float | None) -> float:
    return float("inf") if value is None else value


def _line(label: str, counted: dict[str, Any]) -> str:
    share, error = 100 * counted["share"], 100 * counted["standard_error"]
    return f"  {label:<16} {counted['right']} of {counted['inputs']}: {share:.1f} % (standard error {error:.1f})"
