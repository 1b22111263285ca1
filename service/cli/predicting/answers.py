"""Outputs of a model for people: the most likely classes as bars, or else each output's shape and range of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from service.cli.options import read_labels
from service.cli.output import Output
from service.cli.tables import Table, number, whole
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.signature import TensorSpec
from service.core.models.task import Activation
from service.runtime.protocol import describe
from service.runtime.results import activated

_BAR_COLUMNS = 24


@dataclass(frozen=True)
class Answer:
    """The result of one prediction.

    Attributes:
        model: the model's name and version, or the folder of the compiled model.
        outputs: the output tensors, by name.
        specs: the outputs' types and shapes, in the model's order.
        took_s: how long the prediction took.
        labels: the model's labels. They are not used if their number differs from the number of classes.
        activation: the function that converts real outputs to scores.
    """

    model: str
    outputs: Mapping[str, Array]
    specs: Sequence[TensorSpec]
    took_s: float
    labels: Sequence[str] = ()
    activation: Activation | None = None

    def classes(self, labels: Sequence[str] | None) -> list[dict[str, Any]]:
        """Returns the most likely classes if the first output is a classification, else an empty list."""
        values = self.outputs[self.specs[0].name]
        if labels is None and len(self.labels) == values.size:
            labels = self.labels
        return top(activated(values, self.activation), labels) if is_classification(values) else []

    def unused_labels(self) -> str:
        """Returns why the model's labels are not shown; empty if they are shown, or if the model has none."""
        classes = self.outputs[self.specs[0].name].size
        if len(self.labels) in (0, classes):
            return ""
        return f"the model's labels are not shown: it has {len(self.labels)} labels for {classes} classes"

    def dequantized(self) -> Answer:
        """Returns the same result with real values (FP32) in place of stored integers."""
        outputs, specs = dict(self.outputs), []
        for spec in self.specs:
            if spec.quantization is not None:
                outputs[spec.name] = spec.quantization.real(outputs[spec.name])
                spec = replace(spec, datatype="FP32", quantization=None)
            specs.append(spec)
        return replace(self, outputs=outputs, specs=specs)


def show_answer(
    output: Output, stored: Answer, labels_file: Path | None = None, save: Path | None = None, raw: bool = False
) -> None:
    """Prints a result, in real values unless `raw`; with `save`, also writes the first output as a .npy file."""
    answer = stored if raw else stored.dequantized()
    if raw:
        answer = replace(answer, activation=None)
    best = answer.classes(read_labels(labels_file) if labels_file else None)
    if save:
        np.save(save, answer.outputs[answer.specs[0].name])
    if output.as_json:
        outputs = describe(answer.outputs)
        output.document({"model": answer.model, "outputs": outputs, "top": best, "seconds": answer.took_s})
        return
    if best:
        output.show(bars(best))
    else:
        output.show(*(_describe(spec, answer.outputs[spec.name]) for spec in answer.specs))
    if best and labels_file is None and (unused := answer.unused_labels()):
        output.progress.print(Text(unused, style="yellow"))
    output.show(Text(f"{answer.model} in {answer.took_s * 1000:.1f} ms", style="dim"))


def is_classification(output: Array) -> bool:
    """Returns true if an output has one score for each class: `[classes]` or `[1, classes]`."""
    return output.size > 1 and output.size == output.shape[-1]


def top(values: Array, labels: Sequence[str] | None, count: int = 5) -> list[dict[str, Any]]:
    """Returns the `count` highest classes, best first; of equal ones, the lower class first.

    Raises:
        InvalidInput: there are fewer labels than classes.
    """
    flat = values.ravel().astype(np.float64)
    if labels is not None and len(labels) < flat.size:
        raise InvalidInput(
            f"{len(labels)} labels for {flat.size} classes", hint="write one label per line, class 0 first"
        )
    best = np.argsort(-flat, kind="stable")[:count]
    return [{"class": int(k), "label": labels[k] if labels else str(k), "value": float(flat[k])} for k in best]


def bars(best: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the result of `top` as bars, scaled from 0 to 1 if all values are in that range, else from the lowest to
    the highest value.
    """
    values = [entry["value"] for entry in best]
    are_shares = min(values) >= 0 and max(values) <= 1
    low, span = (0.0, 1.0) if are_shares else (min(values), max(values) - min(values) or 1.0)
    table = Table(number(), whole(), number())
    for rank, entry in enumerate(best):
        style = "bold green" if rank == 0 else "dim"
        bar = Text(("█" * round((entry["value"] - low) / span * _BAR_COLUMNS)).ljust(_BAR_COLUMNS), style=style)
        value = f"{entry['value']:.1%}" if are_shares else f"{entry['value']:g}"
        table.add(Text(entry["label"], style=style), bar, Text(value, style=style))
    return table


def _describe(spec: TensorSpec, value: Array) -> Text:
    """Describes an output that is not a classification: its type, shape, and range of values."""
    held = f"from {value.min():g} to {value.max():g}, mean {value.mean(dtype=np.float64):g}" if value.size else "empty"
    return Text(f"{spec.name}: {spec.datatype} {list(value.shape)}, {held}")
