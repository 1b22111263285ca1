"""Combines a compiled model's coverage report and a profile into its layers and their times.

The coverage report lists the kernel calls in order. The report also lists the operators that no kernel computes, each
with its position: the index of the kernel call that follows it. Functions that the profile timed between two kernel
calls are code that TVM generated for the operators at that position. TVM fuses operators, so the report cannot tell
which function computes which of them. All operators at one position therefore form one layer here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.core.errors import Unsupported

Document = Mapping[str, Any]

INTEGER, FLOAT, LAYOUT, GENERATED = KINDS = ("integer", "float", "layout", "generated")
TITLES = {
    INTEGER: "integer kernels",
    FLOAT: "float kernels",
    LAYOUT: "layout changes",
    GENERATED: "generated code",
}
MOST_GENERATED = 0.1  # above this share of the time, `Explanation.warning` names the generated code
_MOST_NAMED = 4

_OF_EVERY_LAYER = ("layer", "operators", "kernel", "kind", "symbol", "macs")
_NO_OPERATOR = re.compile(
    r"^(octet_plain_)?(fused_)?|(_[0-9a-f]{16}|\d+)$"
)  # the parts of a generated function's name that do not name an operator


@dataclass(frozen=True)
class Call:
    """One call of a function of the library. `seconds` is the median time of many runs."""

    symbol: str
    seconds: float


@dataclass(frozen=True)
class Layer:
    """The operators that one kernel computes, or the operators between two kernels.

    Attributes:
        name, operators: the names of the layer and of its operators in the model.
        kernel: the kernel's family; None for generated code.
        kind: one of `KINDS`, the category that the layer's time is counted in.
        facts: tile sizes and other properties of the kernel.
        macs: the number of multiply-accumulates.
        reasons: operator -> why no kernel computes it.
        calls: the timed calls; empty without a profile, or if no call computes the layer.
    """

    name: str
    operators: str
    kernel: str | None
    kind: str
    macs: int
    facts: Document = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(call.seconds for call in self.calls)


@dataclass(frozen=True)
class Explanation:
    """A model's layers in order of execution.

    Attributes:
        peak_macs_per_s: the most multiply-accumulates per second that the machine reaches with the target's
            instructions; None if this was not measured.
        profile: the profile, which describes the measurement; None if there is none.
        coverage: the coverage report.
        edges: the pairs of indices in `layers` of which the second layer reads a result of the first; empty for
            artifacts of older releases.
    """

    layers: tuple[Layer, ...]
    peak_macs_per_s: float | None
    profile: Document | None
    coverage: Document
    edges: tuple[tuple[int, int], ...] = ()

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def seconds(self) -> float:
        """The sum of all layers' times. The whole model takes longer, by the time between layers."""
        return sum(layer.seconds for layer in self.layers)

    def rates(self, macs: int, seconds: float) -> dict[str, float | None]:
        """Returns the time, the multiplication rate and its percentage of the peak, for `macs` done in `seconds`.

        A value that was not measured is None. If `macs` is 0, the rate and the percentage are None too.
        """
        rate = macs / seconds if macs and seconds else None
        percent = 100.0 * rate / self.peak_macs_per_s if rate and self.peak_macs_per_s else None
        return {"seconds": seconds if self.profile else None, "macs_per_s": rate, "peak_percent": percent}

    def shares(self) -> dict[str, float]:
        """Returns the share of the time that each of `KINDS` takes; empty without a profile."""
        whole = self.seconds
        if not whole:
            return {}
        return {kind: sum(each.seconds for each in self.layers if each.kind == kind) / whole for kind in KINDS}

    def generated(self) -> dict[str, float]:
        """Returns the share of the time that each generated function takes, the largest first.

        The keys name the operators that TVM fused into the function.
        """
        seconds: dict[str, float] = {}
        for call in (call for layer in self.layers if layer.kind == GENERATED for call in layer.calls):
            name = _NO_OPERATOR.sub("", call.symbol)
            seconds[name] = seconds.get(name, 0.0) + call.seconds
        largest_first = sorted(seconds.items(), key=lambda named: -named[1])
        return {name: each / self.seconds for name, each in largest_first if each}

    def seconds_of(self, operators: Collection[str]) -> dict[str, float]:
        """Returns the time of each of `operators`, by name. Operators that run together share their time equally; an
        operator without a layer is left out.
        """
        found: dict[str, float] = {}
        for layer in self.layers:
            names = [name for name in (layer.name, *layer.reasons) if name in operators]
            for name in dict.fromkeys(names):
                found[name] = found.get(name, 0.0) + layer.seconds / len(dict.fromkeys(names))
        return found

    @property
    def warning(self) -> str:
        """The operators whose generated code takes the most time, if that is more than `MOST_GENERATED`; else ""."""
        share = self.shares().get(GENERATED, 0.0)
        if share <= MOST_GENERATED:
            return ""
        largest = [f"{name} {percent(each)}" for name, each in list(self.generated().items())[:_MOST_NAMED]]
        return f"generated code takes {percent(share)} of the time: {', '.join(largest)}"

    def kinds(self) -> dict[str, dict[str, Any]]:
        """Returns the totals for each of `KINDS` that the model has."""
        return self._totals({kind: [each for each in self.layers if each.kind == kind] for kind in KINDS})

    def families(self) -> dict[str, dict[str, Any]]:
        """Returns the totals for each kernel family; "none" is the key of layers without a kernel."""
        families = sorted({layer.kernel or "none" for layer in self.layers})
        return self._totals({name: [it for it in self.layers if (it.kernel or "none") == name] for name in families})

    def _totals(self, parts: Mapping[str, Sequence[Layer]]) -> dict[str, dict[str, Any]]:
        return {name: {"layers": len(part), **self._total(part)} for name, part in parts.items() if part}

    def _total(self, layers: Sequence[Layer]) -> dict[str, Any]:
        macs, seconds = sum(layer.macs for layer in layers), sum(layer.seconds for layer in layers)
        return {"macs": macs, **self.rates(macs, seconds)}

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": {name: value for name, value in (self.profile or {}).items() if name != "calls"} or None,
            "layers": [
                {
                    "layer": layer.name,
                    "operators": layer.operators,
                    "kernel": layer.kernel,
                    "kind": layer.kind,
                    "facts": dict(layer.facts),
                    "reasons": dict(layer.reasons),
                    "macs": layer.macs,
                    **self.rates(layer.macs, layer.seconds),
                    "calls": [{"symbol": call.symbol, "seconds": call.seconds} for call in layer.calls],
                }
                for layer in self.layers
            ],
            "edges": [list(edge) for edge in self.edges],
            "families": self.families(),
            "kinds": self.kinds(),
            "time": self.shares(),
            "generated": self.generated(),
            "warning": self.warning,
            "reorders": self.coverage["kernels"]["reorders"],
            "integer_percent": self.coverage["integer_percent"],
            **self._total(self.layers),
        }


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def is_described(coverage: Document) -> bool:
    """Returns true if a coverage report lists the layers, as those of every release since 0.1.0 do."""
    return "plain" in coverage.get("kernels", {})


def build_explanation(coverage: Document, profile: Document | None = None) -> Explanation:
    """Returns the layers that the report `Report.COVERAGE` lists, with the times of `Report.PROFILE`.

    Raises:
        Unsupported: the artifact was compiled by an old release, whose report does not list the layers.
    """
    if not is_described(coverage):
        raise Unsupported("the artifact's coverage report does not describe its layers", hint="compile the model again")
    kernels = coverage["kernels"]
    calls = [Call(call["symbol"], call["seconds"]) for call in profile["calls"]] if profile else []
    own, between = _align_calls([layer["symbol"] for layer in kernels["layers"]], calls)
    layers: list[Layer] = []
    indices: dict[int, int] = {}  # the number of a layer in the report -> its index in `layers`
    for place_index in range(len(kernels["layers"]) + 1):
        operators = [operator for operator in kernels["plain"] if operator["place"] == place_index]
        if operators or between[place_index]:
            indices[2 * place_index] = len(layers)
            layers.append(_generated_layer(operators, between[place_index]))
        if place_index < len(kernels["layers"]):
            indices[2 * place_index + 1] = len(layers)
            layers.append(_kernel_layer(kernels["layers"][place_index], own[place_index]))
    if not kernels["layers"] and not kernels["plain"] and layers:  # the target has no kernel library: one layer
        layers = [Layer("", "", None, GENERATED, coverage["macs"], calls=layers[0].calls)]
    edges = tuple((indices[source], indices[reader]) for source, reader in kernels.get("edges", []))
    return Explanation(tuple(layers), profile["peak_macs_per_s"] if profile else None, profile, coverage, edges)


def _align_calls(symbols: Sequence[str], calls: Sequence[Call]) -> tuple[list[tuple[Call, ...]], list[list[Call]]]:
    """Returns the call of each kernel, and the lists of calls before each kernel and after the last one.

    A kernel whose result is unused is listed in the report, but has no call.
    """
    own: list[tuple[Call, ...]] = [()] * len(symbols)
    between: list[list[Call]] = [[] for _ in range(len(symbols) + 1)]
    place_index = 0
    for call in calls:
        found = next((later for later in range(place_index, len(symbols)) if symbols[later] == call.symbol), None)
        if found is None:
            between[place_index].append(call)
        else:
            own[found] = (call,)
            place_index = found + 1
    return own, between


def _kernel_layer(layer: Document, calls: tuple[Call, ...]) -> Layer:
    facts = {name: fact for name, fact in layer.items() if name not in _OF_EVERY_LAYER}
    # releases in which all kernels were integer kernels wrote reports without this member
    kind = layer.get("kind", INTEGER)
    return Layer(layer["layer"], layer["operators"], layer["kernel"], kind, layer["macs"], facts, calls=calls)


def _generated_layer(operators: Sequence[Document], calls: Sequence[Call]) -> Layer:
    names, kinds = ([operator[what] for operator in operators] for what in ("layer", "operators"))
    reasons = {operator["layer"]: operator["reason"] for operator in operators}
    macs = sum(operator["macs"] for operator in operators)
    return Layer(", ".join(names), ", ".join(kinds), None, GENERATED, macs, reasons=reasons, calls=tuple(calls))
