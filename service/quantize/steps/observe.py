"""Runs the compiled float model on the inputs, and collects the statistics of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.messages.observing import ObservedModel
from service.core.builds.quantization import Raised
from service.core.errors import Unsupported
from service.quantize.calibration.data import Data
from service.quantize.calibration.methods import OF_EXTREMES, Statistics
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.file.document import Document
from service.quantize.program.parameters import Stored
from service.quantize.rewrites.narrowing import check_narrow
from service.quantize.rewrites.rewriting import check_operator_set
from service.quantize.steps.choose import TensorStatistics, integer_form
from service.quantize.steps.fold import Factors, check_names, fold
from service.quantize.steps.options import Options
from service.quantize.steps.program import Program
from service.quantize.weights.fitting import operands
from service.quantize.weights.spreading import factors, spreadable


@dataclass(frozen=True)
class Observed:
    """A float model that was run on the inputs.

    Attributes:
        names: the tensors that were observed, except for the model's inputs.
        factors: the factors by which the channels of tensors are multiplied.
        model: the program as it ran last: in float, or with the types of the last round.
        positions: tensor -> its index among the inputs and outputs of `model`.
    """

    program: Program
    names: tuple[str, ...]
    factors: Factors
    model: ObservedModel
    positions: Mapping[str, int]
    statistics: TensorStatistics


def observe(
    source: bytes, session: CalibrationSession, data: Data, options: Options, raise_to: Raised | None
) -> Observed:
    """Compiles a float model, and collects the statistics of its tensors.

    In the first round, all ranges are those of the float model. In each further round, the ranges come from the model
    that is quantized with the ranges of the previous round. So after n rounds, the first n tensors have the ranges that
    they would get if tensors were calibrated one by one, each after all tensors before it were quantized. The ranges of
    the other tensors are close to the ones that they would get.

    Args:
        source: ONNX.
        raise_to: the type that a search will try besides int8 and float; None if no search follows.

    Raises:
        Unsupported: the model is already quantized, nothing in it can be quantized, or its operator set is too old.
        InvalidInput: see `fold` and `check_narrow`.
        OctetError: the model does not compile, or `data` does not fit it.
    """
    folded = fold(source, options.in_integers, {})
    document, plan = folded.document, folded.plan
    if not plan.layers:
        raise Unsupported(
            "nothing in this model can be quantized", hint=f"these operators can: {', '.join(options.patterns)}"
        )
    # These are checked before anything is run, because running the inputs takes minutes.
    check_names(document, options)
    check_narrow(document, options.bfloat16)
    check_operator_set(document)
    wanted = dict.fromkeys((*plan.observed, *(operands(plan) if options.fit else ())))
    inner = [name for name in wanted if name not in document.inputs and name not in document.outputs]
    program = Program(
        source,
        session,
        options,
        inner,
        stored=options.rounds > 0 or raise_to is not None,
        narrow=raise_to is Raised.BFLOAT16,
    )
    names = (*document.outputs, *inner)
    spread = _find_factors(program, document, names, session, data)
    model = program.in_float(spread)
    statistics = TensorStatistics(_statistics(program, model, session, data, options), plan.tensors)
    for _ in range(options.rounds):
        each = fold(source, options, spread)
        choice = Stored(each.document, each.plan, integer_form(statistics, each.plan, options))
        (numbers,) = program.numbers([choice])
        model = program.with_numbers(numbers)
        statistics = TensorStatistics(_statistics(program, model, session, data, options), plan.tensors)
    return Observed(program, names, spread, model, program.positions, statistics)


def _find_factors(
    program: Program, document: Document, names: tuple[str, ...], session: CalibrationSession, data: Data
) -> Factors:
    """Returns the factors by which the channels of tensors are multiplied. Tensors whose factors are all 1 are not
    included.
    """
    found = [name for name in spreadable(document) if name in names]
    if not found:
        return {}
    first = len(document.inputs)
    positions = [program.positions[name] - first for name in found]
    seen = session.channels(program.in_float({}), data, positions)
    rows = {name: factors(channels) for name, channels in zip(found, seen, strict=True)}
    return {name: row for name, row in rows.items() if (row != 1).any()}


def _statistics(
    program: Program, model: ObservedModel, session: CalibrationSession, data: Data, options: Options
) -> dict[str, Statistics]:
    found = session.statistics(model, data, options.method not in OF_EXTREMES, program.names)
    return {each.name: each for each in found}
