"""Inserts the conversions into a float model, and returns the quantized file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.quantize.rewrites.narrowing import check_narrow, narrow
from service.quantize.rewrites.patterns import Layer, Plan, counted
from service.quantize.rewrites.rewriting import Form, rewrite
from service.quantize.rewrites.widening import widen
from service.quantize.steps.choose import integer_form, wide_form
from service.quantize.steps.fit import Fitting
from service.quantize.steps.fold import Folded, fold
from service.quantize.steps.options import Options


@dataclass(frozen=True)
class Quantized:
    """A quantized model.

    Attributes:
        file: an ONNX file with QuantizeLinear and DequantizeLinear.
        with_tensors: the same model with more outputs: its own, whose number is `outputs`, and then the tensors that
            the calibration observed.
    """

    file: bytes
    plan: Plan
    with_tensors: bytes
    outputs: int

    @property
    def real(self) -> list[tuple[str, str, int]]:
        """The operators that stayed in float, as tuples of type, reason and number."""
        return counted(self.plan.real)


@dataclass(frozen=True)
class Stores:
    """A folded model, and how its layers are stored.

    Attributes:
        integer: the types and weights of layers in int8.
        wide: those of layers of `wide_plan`, which also contains the layers that are raised to 16x8.
        raised: the layers in 16x8.
    """

    folded: Folded
    integer: Form
    wide_plan: Plan
    wide: Form
    raised: Sequence[Layer]


def decide(fitting: Fitting, options: Options, *, all_wide: bool = False) -> Stores:
    """Chooses the types of tensors, and fits the weights.

    Args:
        all_wide: true if every layer in int8 also needs its form in 16x8.

    Raises:
        InvalidInput: one of the layers in `options.bfloat16` cannot run in bfloat16.
    """
    observed, source = fitting.observed, fitting.source
    folded = fold(source, options, observed.factors)
    check_narrow(folded.document, options.bfloat16)
    whole = fold(source, replace(options, wide=()), observed.factors).plan if options.wide else folded.plan
    raised = [layer for layer in whole.layers if layer.name in options.wide and layer.name not in options.kept]
    integer = fitting.fit(integer_form(observed.statistics, folded.plan, options), folded.plan.layers, options)
    wide = fitting.fit(wide_form(observed.statistics, whole), whole.layers if all_wide else raised, options)
    return Stores(folded, integer, whole, wide, raised)


def rewrite_file(stores: Stores, options: Options, names: Sequence[str]) -> Quantized:
    """Writes the quantized file. Changes the document of `stores`.

    Args:
        names: the tensors that the calibration observed, beginning with the model's outputs.

    Raises:
        Unsupported: the model's operator set is too old.
    """
    document, plan = stores.folded.document, stores.folded.plan
    stored = rewrite(document, plan, stores.integer)
    widen(document, stores.raised, stores.wide)
    narrow(document, {*options.bfloat16} - {*options.kept, *options.wide})
    file = document.serialize()
    twins = [stored[name].dequantized if name in stored else name for name in names[len(document.outputs) :]]
    return Quantized(file, plan, document.serialize((*document.outputs, *twins)), len(document.outputs))
