"""The options of a quantization with a calibration set."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from service.core.builds.quantization import LiveRange
from service.core.errors import InvalidInput
from service.quantize.calibration.methods import METHODS, Choose
from service.quantize.rewrites.patterns import PATTERNS, Pattern
from service.quantize.weights.fitting import Fit


@dataclass(frozen=True)
class Options:
    """How to quantize a model.

    Attributes:
        choose: the method that chooses types from statistics. Its value is a name in `METHODS`, or a function.
        storage: the storage type of activations. Weights are int8, symmetric, with a scale for each channel.
        kept: the names of outputs of operators that stay in float.
        wide: the names of outputs of operators with 8-bit weights and 16-bit activations.
        bfloat16: the names of outputs of operators whose operands are rounded to bfloat16.
        fit: selects how weights and biases are fitted to the observed activations.
        equalize: true if the channels of adjacent layers are first scaled to equal ranges.
        rounds: how often ranges are chosen again, using the activations of the quantized model.
        live: ranges that the ranges of tensors must contain (`steps.live`).
        patterns: the rules that decide which operators are quantized.
    """

    choose: str | Choose = "minmax"
    storage: str = "uint8"
    kept: Collection[str] = ()
    wide: Collection[str] = ()
    bfloat16: Collection[str] = ()
    fit: Fit = field(default_factory=Fit)
    equalize: bool = False
    rounds: int = 0
    live: Sequence[LiveRange] = ()
    patterns: Mapping[str, Pattern] = field(default_factory=lambda: PATTERNS)

    @property
    def raised(self) -> set[str]:
        """The names of outputs of operators that do not run in int8."""
        return {*self.kept, *self.wide, *self.bfloat16}

    @property
    def in_integers(self) -> Options:
        """The same options with no layer in 16x8 or bfloat16."""
        return replace(self, wide=(), bfloat16=())

    def raising(
        self, kept: Collection[str] = (), wide: Collection[str] = (), bfloat16: Collection[str] = ()
    ) -> Options:
        """Returns the same options with additional layers in float, 16x8 or bfloat16."""
        return replace(
            self,
            kept=(*self.kept, *kept),
            wide=(*self.wide, *wide),
            bfloat16=(*self.bfloat16, *bfloat16),
        )

    @property
    def method(self) -> Choose:
        if not isinstance(self.choose, str):
            return self.choose
        if self.choose not in METHODS:
            raise InvalidInput(f"{self.choose!r} is not a method", hint=f"use one of: {', '.join(METHODS)}")
        return METHODS[self.choose]
