"""Builds the calibration program of a float model: one for all choices, unless a choice needs other weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from service.compiler.messages.observing import ObservedModel
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.program.parameters import (
    Numbers,
    OtherWeights,
    Stored,
    float_numbers,
    stored_numbers,
    variants_of,
)
from service.quantize.program.slots import Slots
from service.quantize.program.writing import write_program
from service.quantize.rewrites.narrowing import objection
from service.quantize.rewrites.patterns import Plan
from service.quantize.rewrites.rewriting import Form
from service.quantize.steps.fold import Factors, Folded, fold
from service.quantize.steps.options import Options


class Program:
    """A compiled calibration program. Its first outputs are the model's, followed by other tensors.

    Attributes:
        slots: the layers that have parameters. The program has none as long as no choice was requested.
        names: the names of the inputs and outputs in the float model. If results are observed before they are stored,
            an output of the model that can be stored occurs twice. The last one contains these values.
    """

    def __init__(
        self,
        source: bytes,
        session: CalibrationSession,
        options: Options,
        tensors: Sequence[str],
        *,
        stored: bool,
        narrow: bool,
    ) -> None:
        """Builds the program.

        Args:
            options: how the model is simplified. With rounds, results are observed before they are stored.
            tensors: the tensors to observe, except for inputs and outputs.
            stored: true if choices will be requested.
            narrow: true if layers can also run in bfloat16.

        Raises:
            OctetError: the program does not compile.
        """
        self._source, self._session, self._tensors, self._is_narrow = source, session, tensors, narrow
        self._options = replace(options.in_integers, kept=())
        folded = self._fold({})
        self._build(folded, [Stored(folded.document, folded.plan, Form({}, real_biases=True))] if stored else [])

    @property
    def positions(self) -> Mapping[str, int]:
        """Tensor -> its index among the inputs and outputs."""
        return {name: index for index, name in enumerate(self.names)}

    def in_float(self, factors: Factors) -> ObservedModel:
        """Returns the program with all layers in float."""
        if self.slots:
            return self.with_numbers(float_numbers(self.slots, self._fold(factors).document))
        if factors:
            self._session.discard(self._model)
            self._build(self._fold(factors), [])
        return self._model

    def numbers(self, choices: Sequence[Stored]) -> list[list[Numbers]]:
        """Returns the numbers for each choice. Builds the program again if it does not contain the weights of the
        choices.
        """
        try:
            return self._numbers(choices)
        except OtherWeights:
            self._build(self._fold({}), choices)
            return self._numbers(choices)

    def with_numbers(self, *sets: Sequence[Numbers]) -> ObservedModel:
        """Returns the program with numbers for its parameters. Passes that do not select a set for each layer use the
        first set.
        """
        owners = [index for index, slots in enumerate(self.slots) for _ in slots.inputs]
        flat = [[number for numbers in each for number in numbers] for each in sets]
        return self._session.with_parameters(self._model, owners, flat)

    def _numbers(self, choices: Sequence[Stored]) -> list[list[Numbers]]:
        if not self.slots:
            raise OtherWeights
        return [stored_numbers(self.slots, choice) for choice in choices]

    def _build(self, folded: Folded, choices: Sequence[Stored]) -> None:
        document, plan = folded.document, folded.plan if choices else Plan((), {}, {})
        inputs, outputs = document.inputs, document.outputs
        products = [layer.name for layer in plan.layers if self._is_narrow and objection(document, layer.node) is None]
        written = write_program(document, plan, variants_of(choices), products)
        before = written.unrounded if self._options.rounds else {}
        twice = [name for name in outputs if name in before]
        ends = [*outputs, *(before.get(name, name) for name in (*self._tensors, *twice))]
        self._model: ObservedModel = self._session.build(document.serialize(ends))
        self.slots: tuple[Slots, ...] = written.slots
        self.names: tuple[str, ...] = (*inputs, *outputs, *self._tensors, *twice)

    def _fold(self, factors: Factors) -> Folded:
        return fold(self._source, self._options, factors)
