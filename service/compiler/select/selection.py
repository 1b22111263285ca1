"""The result of a selection: a model with kernel calls, and a record of how each operator is computed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import tvm

from service.compiler.kernels.kernel import Kernel


@dataclass
class Selection:
    """A model with kernel calls, and a record of how each operator is computed.

    Attributes:
        module: the model.
        kernels: maps the symbol by which the model calls a kernel to the kernel.
        layers: a description of each kernel call, in order of execution, for reports.
        plain: the operators that no kernel computes. An operator's `place` is the index in `layers` of the first kernel
            call after the operator.
        declined: maps the name of a group to the reason why no kernel computes it.
        edges: the pairs of layers of which the second reads a result of the first (`edges.edges_of`).
        concatenations: the concatenations of images, each with the number of its `parts` and the number of parts that
            were written `in_place`.
        inexact: maps the symbol of generated GPU code to the library functions that it calls whose last bit may differ
            from a CPU's result (`lowering.gpu.spelling.INEXACT`).
    """

    module: tvm.IRModule
    kernels: dict[str, Kernel] = field(default_factory=dict)
    layers: list[dict[str, Any]] = field(default_factory=list)
    plain: list[dict[str, Any]] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)
    concatenations: list[dict[str, Any]] = field(default_factory=list)
    inexact: dict[str, list[str]] = field(default_factory=dict)
    edges: list[list[int]] = field(default_factory=list)

    def call(self, kernel: Kernel, layer: str, operators: str, macs: int) -> None:
        """Records a call of `kernel`, after the calls recorded so far."""
        self.kernels[kernel.symbol] = kernel
        called = {"layer": layer, "operators": operators, "kernel": kernel.family, "symbol": kernel.symbol}
        self.layers.append({**called, "macs": macs, "kind": kernel.kind, **kernel.facts})

    def leave(self, layer: str, operators: str, reason: str, macs: int = 0) -> None:
        """Records operators that no kernel computes."""
        left = {"layer": layer, "operators": operators, "reason": reason, "macs": macs}
        self.plain.append({**left, "place": len(self.layers)})

    def report(self) -> dict[str, Any]:
        """Returns the report of how each operator is computed."""
        reorders = sum(layer["kernel"] in ("pack", "unpack") for layer in self.layers)
        families: dict[str, Counter[str]] = {}
        for layer in self.layers:
            families.setdefault(layer["kernel"], Counter()).update(calls=1, macs=layer["macs"])
        return {
            "layers": self.layers,
            "plain": self.plain,
            "edges": self.edges,
            "declined": self.declined,
            "reorders": reorders,
            "concatenations": self.concatenations,
            "inexact": self.inexact,
            "families": {family: dict(totals) for family, totals in sorted(families.items())},
        }
