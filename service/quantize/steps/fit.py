"""Computes the stored weights and biases of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.quantize.calibration.data import Data
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.rewrites.patterns import Layer
from service.quantize.rewrites.rewriting import Fitted, Form, is_fitted, key_of
from service.quantize.steps.choose import integer_form, wide_form
from service.quantize.steps.fold import fold
from service.quantize.steps.observe import Observed
from service.quantize.steps.options import Options
from service.quantize.weights.fitting import fit_layers


@dataclass(frozen=True)
class Fitting:
    """Fits weights to observed activations. Each layer is fitted once for the same options.

    Attributes:
        kept: the layers that stay in float for all options.
    """

    source: bytes
    observed: Observed
    session: CalibrationSession
    data: Data
    kept: Sequence[str]
    _known: dict[tuple[Any, ...], dict[tuple[str, str], Fitted]] = field(default_factory=dict)

    def fit(self, form: Form, layers: Sequence[Layer], options: Options) -> Form:
        """Returns `form` with the weights of `layers` fitted to their operands, as that form stores them."""
        if not options.fit:
            return form
        key = (options.choose, options.storage, options.fit, options.equalize, form.real_biases)
        known = self._known.setdefault(key, {})
        missing = {key_of(layer) for layer in layers if is_fitted(layer)} - known.keys()
        if missing:
            observed = self.observed
            folded = fold(self.source, replace(options.in_integers, kept=self.kept), observed.factors)
            plan, statistics = folded.plan, observed.statistics
            own = tuple(layer for layer in plan.layers if is_fitted(layer) and key_of(layer) in missing)
            types = wide_form(statistics, plan) if form.real_biases else integer_form(statistics, plan, options)
            known |= fit_layers(
                folded.document,
                replace(plan, layers=own),
                types,
                options.fit,
                self.session,
                observed.model,
                observed.positions,
                self.data,
            )
        return replace(form, fits=known)
