"""Quantizes a float ONNX model with a calibration set, and measures the loss of accuracy.

`Calibration` connects the steps (`quantize.steps`) for callers that try several options on one model.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.core.builds.quantization import Raised
from service.core.errors import InvalidInput
from service.quantize.calibration.data import Data
from service.quantize.calibration.methods import Statistics
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.program.parameters import Stored, float_numbers
from service.quantize.search.sensitivity import Mixtures, Point, Precision, Sensitivity, measure_mixtures
from service.quantize.steps.check import Measured, check
from service.quantize.steps.fit import Fitting
from service.quantize.steps.observe import observe
from service.quantize.steps.options import Options
from service.quantize.steps.rewrite import Quantized, decide, rewrite_file

__all__ = ["Calibration", "Measured", "Options", "Quantized"]


class Calibration:
    """A float model that was compiled with all its tensors as outputs, and the statistics of these tensors.

    One calibration can be used for any number of quantizations of the same plan. If `rounds` is used, all of them use
    the ranges of the calibration's own method.
    """

    def __init__(
        self,
        model: bytes,
        session: CalibrationSession,
        data: Data,
        options: Options,
        raise_to: Raised | None = None,
    ) -> None:
        """Compiles `model` with its tensors as outputs, and runs it on `data` (`steps.observe`).

        Args:
            model: ONNX.
            raise_to: the type that `sensitivity` and `simulate` will try besides int8 and float. Without it, the first
                call of these methods compiles another model.
        """
        self._session, self._data, self._raise_to = session, data, raise_to or Raised.WIDE
        self.observed = observe(model, session, data, options, raise_to)
        self._fitting = Fitting(model, self.observed, session, data, tuple(options.kept))

    @property
    def statistics(self) -> dict[str, Statistics]:
        return dict(self.observed.statistics.observed)

    def quantize(self, options: Options) -> Quantized:
        """Quantizes the model, using the collected statistics. Raises the errors of `decide` and `rewrite_file`."""
        return rewrite_file(decide(self._fitting, options), options, self.observed.names)

    def measure(self, quantized: Quantized, labels: Sequence[int | None] = (), data: Data | None = None) -> Measured:
        """Builds the quantized model, runs the float and the quantized model, and compares their outputs. By default,
        the inputs are those of the calibration.
        """
        return check(quantized, self.observed, self._session, data or self._data, labels)

    def sensitivity(self, options: Options) -> Sensitivity:
        """Measures the loss of quantizing each layer alone. Raises the errors of `quantize`."""
        mixtures, names = self._mixtures(options)
        return Sensitivity.measure(self._session, mixtures, self._data, names, self._raise_to)

    def simulate(self, options: Options, labels: Sequence[int | None] = ()) -> Point:
        """Measures a choice of types with the calibration program. In contrast to `measure`, it builds nothing, unless
        the choice needs other weights than those before.

        Raises:
            InvalidInput: see `decide`. Also raised if layers are in bfloat16, but `raise_to` is another type.
        """
        if options.bfloat16 and self._raise_to is not Raised.BFLOAT16:
            raise InvalidInput("the calibration program has no layers in bfloat16", hint="pass raise_to to Calibration")
        mixtures, _ = self._mixtures(options)
        stores = decide(self._fitting, options)
        integers = {layer.name: Precision.INTEGER for layer in stores.folded.plan.layers}
        narrow = {*options.bfloat16} - {*options.kept, *options.wide}
        raised = {
            **dict.fromkeys(options.kept, Precision.FLOAT),
            **{layer.name: Precision.WIDE for layer in stores.raised},
            **dict.fromkeys(narrow, Precision.BFLOAT16),
        }
        (point,) = measure_mixtures(self._session, mixtures, self._data, [(raised, integers)], labels)
        return point

    def _mixtures(self, options: Options) -> tuple[Mixtures, list[str]]:
        """Returns the calibration program with the types of `options`, and the layers whose types can be chosen.
        Operators that only move values have the type of their operand.
        """
        stores = decide(self._fitting, options, all_wide=True)
        document, plan, program = stores.folded.document, stores.folded.plan, self.observed.program
        sets = program.numbers(
            [Stored(document, plan, stores.integer), Stored(document, stores.wide_plan, stores.wide)]
        )
        slots = program.slots
        real, narrow = (float_numbers(slots, document, is_narrow=each) for each in (False, True))
        model = program.with_numbers(real, *sets, narrow)
        layers = tuple(each.layer.name for each in slots)
        narrowable = {each.layer.name for each in slots if each.product is not None and each.product.narrow}
        return Mixtures(model, layers, narrowable), [each.name for each in plan.layers if not each.pattern.moves]
