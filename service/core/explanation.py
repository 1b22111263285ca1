"""The layers of a compiled model and their times: its coverage report and a profile, side by side.

The coverage report lists the calls of kernels in order, and the operators that no kernel computes, each with the place
where it stands among them. What a profile has timed between two kernels is code that TVM generated for the operators at
that place; which function belongs to which of them is not known, since TVM fuses them, so they are one layer here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.core.errors import Unsupported

Document = Mapping[str, Any]

INTEGER, FLOAT, LAYOUT, GENERATED = KINDS = ("integer", "float", "layout", "generated")
TITLES = {
    INTEGER: "integer kernels",
    FLOAT: "float kernels",
    LAYOUT: "changes of layout",
    GENERATED: "generated code",
}
MOST_GENERATED = 0.1  # of the time; what takes more is named
_MOST_NAMED = 4

_OF_EVERY_LAYER = ("layer", "operators", "kernel", "kind", "symbol", "macs")
_NO_OPERATOR = re.compile(r"^(octet_plain_)?(fused_)?|(_[0-9a-f]{16}|\d+)$")  # of a generated function's name


@dataclass(frozen=True)
class Call:
    """A function of the library as the model calls it. `seconds` is the median of many calls."""

    symbol: str
    seconds: float


@dataclass(frozen=True)
class Layer:
    """One kernel's work, or what stands between two kernels.

    Attributes:
        name, operators: as in the model.
        kernel: its family; None for generated code.
        kind: of `KINDS`: what its time counts as.
        facts: tile sizes and the like.
        macs: multiply-accumulates.
        reasons: operator -> why no kernel computes it.
        calls: what was timed; nothing without a profile, or if the layer is computed by none.
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
        peak_macs_per_s: what the machine can multiply at most with the target's instructions; None if not measured.
        profile: where, how and how often was measured; None if it was not.
    """

    layers: tuple[Layer, ...]
    peak_macs_per_s: float | None
    profile: Document | None
    coverage: Document

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def seconds(self) -> float:
        """The sum of all layers' times. The whole model takes longer, by the time between layers."""
        return sum(layer.seconds for layer in self.layers)

    def rates(self, macs: int, seconds: float) -> dict[str, float | None]:
        """Rates of measured work. Work that was not measured has none, and work without multiplications has no
        multiplication rate.
        """
        rate = macs / seconds if macs and seconds else None
        percent = 100.0 * rate / self.peak_macs_per_s if rate and self.peak_macs_per_s else None
        return {"seconds": seconds if self.profile else None, "macs_per_s": rate, "peak_percent": percent}

    def shares(self) -> dict[str, float]:
        """The share of the time of each of `KINDS`; nothing without a profile."""
        whole = self.seconds
        if not whole:
            return {}
        return {kind: sum(each.seconds for each in self.layers if each.kind == kind) / whole for kind in KINDS}

    def generated(self) -> dict[str, float]:
        """The share of the time of each operator of generated code, the largest first. TVM names a function by the
        operators that it fused."""
        seconds: dict[str, float] = {}
        for call in (call for layer in self.layers if layer.kind == GENERATED for call in layer.calls):
            name = _NO_OPERATOR.sub("", call.symbol)
            seconds[name] = seconds.get(name, 0.0) + call.seconds
        largest_first = sorted(seconds.items(), key=lambda named: -named[1])
        return {name: each / self.seconds for name, each in largest_first if each}

    @property
    def warning(self) -> str:
        """The operators whose generated code takes the most time, if that is more than `MOST_GENERATED`; else ""."""
        share = self.shares().get(GENERATED, 0.0)
        if share <= MOST_GENERATED:
            return ""
        largest = [f"{name} {percent(each)}" for name, each in list(self.generated().items())[:_MOST_NAMED]]
        return f"generated code takes {percent(share)} of the time: {', '.join(largest)}"

    def kinds(self) -> dict[str, dict[str, Any]]:
        """Totals by kind of code, of those kinds that there are."""
        return self._totals({kind: [each for each in self.layers if each.kind == kind] for kind in KINDS})

    def families(self) -> dict[str, dict[str, Any]]:
        """Totals by kernel family; what has no kernel is "none"."""
        families = sorted({layer.kernel or "none" for layer in self.layers})
        return self._totals({name: [it for it in self.layers if (it.kernel or "none") == name] for name in families})

    def _totals(self, parts: Mapping[str, Sequence[Layer]]) -> dict[str, dict[str, Any]]:
        return {name: {"layers": len(part), **self._total(part)} for name, part in parts.items() if part}

    def _total(self, layers: Sequence[Layer]) -> dict[str, Any]:
        macs, seconds = sum(layer.macs for layer in layers), sum(layer.seconds for layer in layers)
        return {"macs": macs, **self.rates(macs, seconds)}

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": {name: told for name, told in (self.profile or {}).items() if name != "calls"} or None,
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
    """Whether a coverage report lists the layers, as every version since 0.1.0 writes it."""
    return "plain" in coverage.get("kernels", {})


def explained(coverage: Document, profile: Document | None = None) -> Explanation:
    """The layers that `Report.COVERAGE` lists, with the times of `Report.PROFILE`.

    Raises:
        Unsupported: the artifact was compiled by a version whose report says less.
    """
    if not is_described(coverage):
        raise Unsupported("the artifact's coverage report does not describe its layers", hint="compile the model again")
    kernels = coverage["kernels"]
    calls = [Call(call["symbol"], call["seconds"]) for call in profile["calls"]] if profile else []
    own, between = _aligned([layer["symbol"] for layer in kernels["layers"]], calls)
    layers = []
    for place in range(len(kernels["layers"]) + 1):
        operators = [operator for operator in kernels["plain"] if operator["place"] == place]
        if operators or between[place]:
            layers.append(_generated(operators, between[place]))
        if place < len(kernels["layers"]):
            layers.append(_computed(kernels["layers"][place], own[place]))
    if not kernels["layers"] and not kernels["plain"] and layers:  # there is no library for the target: one layer
        layers = [Layer("", "", None, GENERATED, coverage["macs"], calls=layers[0].calls)]
    return Explanation(tuple(layers), profile["peak_macs_per_s"] if profile else None, profile, coverage)


def _aligned(symbols: Sequence[str], calls: Sequence[Call]) -> tuple[list[tuple[Call, ...]], list[list[Call]]]:
    """The call of each kernel, and the calls before each and after the last. A kernel whose result is unused is
    listed, but not called."""
    own: list[tuple[Call, ...]] = [()] * len(symbols)
    between: list[list[Call]] = [[] for _ in range(len(symbols) + 1)]
    place = 0
    for call in calls:
        found = next((later for later in range(place, len(symbols)) if symbols[later] == call.symbol), None)
        if found is None:
            between[place].append(call)
        else:
            own[found] = (call,)
            place = found + 1
    return own, between


def _computed(layer: Document, calls: tuple[Call, ...]) -> Layer:
    facts = {name: fact for name, fact in layer.items() if name not in _OF_EVERY_LAYER}
    kind = layer.get("kind", INTEGER)  # reports before there were others say none
    return Layer(layer["layer"], layer["operators"], layer["kernel"], kind, layer["macs"], facts, calls=calls)


def _generated(operators: Sequence[Document], calls: Sequence[Call]) -> Layer:
    names, kinds = ([operator[what] for operator in operators] for what in ("layer", "operators"))
    reasons = {operator["layer"]: operator["reason"] for operator in operators}
    macs = sum(operator["macs"] for operator in operators)
    return Layer(", ".join(names), ", ".join(kinds), None, GENERATED, macs, reasons=reasons, calls=tuple(calls))
