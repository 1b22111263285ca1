"""Quantizes a float ONNX model with a calibration set, and measures the loss of accuracy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.compiler.importers.onnx.support import is_quantized
from service.compiler.qnn.types import QuantizedType
from service.core.errors import InvalidInput, Unsupported
from service.core.models.arrays import Array
from service.quantize.calibration.data import Data, accuracy, classes_of
from service.quantize.calibration.methods import METHODS, OF_EXTREMES, Choose, Statistics, minmax
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.file.document import Document
from service.quantize.rewrites.folding import tidy
from service.quantize.rewrites.narrowing import check_narrow, narrow, objection
from service.quantize.rewrites.patterns import PATTERNS, Layer, Pattern, Plan, counted, plan
from service.quantize.rewrites.rewriting import Fitted, Form, is_fitted, key_of, rewrite
from service.quantize.rewrites.switched import switched
from service.quantize.rewrites.widening import STORAGE, widen
from service.quantize.search.sensitivity import Sensitivity, decibels, finite
from service.quantize.weights.equalizing import equalize
from service.quantize.weights.fitting import Fit, fit_layers, operands
from service.quantize.weights.spreading import factors, spread, spreadable

STORAGES = ("uint8", "int8")


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
    patterns: Mapping[str, Pattern] = field(default_factory=lambda: PATTERNS)

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
            raise InvalidInput(f"there is no method {self.choose!r}", hint=f"use one of: {', '.join(METHODS)}")
        return METHODS[self.choose]


class Calibration:
    """A float model that was compiled with all its tensors as outputs, and the statistics of these tensors.

    One calibration can be used for any number of quantizations of the same plan. If `rounds` is used, all of them use
    the ranges of the calibration's own method.

    In the first round, all ranges are those of the float model. In each further round, the ranges come from the model
    that is quantized with the ranges of the previous round. So after n rounds, the first n tensors have the ranges that
    they would get if tensors were calibrated one by one, each after all tensors before it were quantized. The ranges of
    the other tensors are close to the ones that they would get.
    """

    def __init__(self, model: bytes, session: CalibrationSession, data: Data, options: Options) -> None:
        """Compiles `model` with its tensors as outputs, and runs it on `data`.

        Raises:
            Unsupported: the model is already quantized, or nothing in it can be quantized.
            InvalidInput: see `quantize`.
            OctetError: the model does not compile, or `data` does not fit it.
        """
        self.model, self._session, self._data = model, session, data
        self._factors: dict[str, Array] = {}
        document, planned = self._make_plan(replace(options, wide=(), bfloat16=()))
        if not planned.layers:
            raise Unsupported(
                "nothing in this model can be quantized", hint=f"these operators can: {', '.join(options.patterns)}"
            )
        check_narrow(document, options.bfloat16)  # checked early, before anything is run
        self._kept, self._tensors = options.kept, planned.tensors
        wanted = dict.fromkeys((*planned.observed, *(operands(planned) if options.fit else ())))
        self.names = (*document.outputs, *(name for name in wanted if _is_made(document, name)))
        self._ends = (*document.inputs, *self.names)
        self._fitted: dict[tuple[Any, ...], dict[tuple[str, str], Fitted]] = {}
        self.float = self._observed = session.build(document.serialize(self.names))
        if narrow_ones := self._narrow(document):
            self._factors = narrow_ones
            session.discard(self.float)
            document, _ = self._make_plan(replace(options, wide=(), bfloat16=()))
            self.float = self._observed = session.build(document.serialize(self.names))
        self.statistics = self._collect_statistics(options)
        for _ in range(options.rounds):
            self._observed = session.build(self._prefixes(options))
            self.statistics = self._collect_statistics(options)

    def _narrow(self, document: Document) -> dict[str, Array]:
        """Returns the factors by which the channels of tensors are multiplied. Tensors whose factors are all 1 are not
        included.
        """
        names = [name for name in spreadable(document) if name in self.names]
        seen = self._session.channels(self.float, self._data, names) if names else []
        found = {name: factors(channels) for name, channels in zip(names, seen, strict=True)}
        return {name: row for name, row in found.items() if (row != 1).any()}

    def _make_plan(self, options: Options) -> tuple[Document, Plan]:
        return _make_plan(self.model, options, self._factors)

    def _collect_statistics(self, options: Options) -> dict[str, Statistics]:
        histograms = options.method not in OF_EXTREMES
        found = self._session.statistics(self._observed, self._data, histograms)
        return {name: replace(each, name=name) for name, each in zip(self._ends, found, strict=True)}

    def _prefixes(self, options: Options) -> bytes:
        """Returns the quantized model with its tensors as outputs. Each is the value before it is rounded."""
        document, planned = self._make_plan(options)
        stored = rewrite(document, planned, Form(self._types(planned, options)))
        return document.serialize(stored[name].real if name in stored else name for name in self.names)

    def _types(self, planned: Plan, options: Options) -> dict[str, QuantizedType]:
        choose = options.method
        return {name: choose(self._statistics_of(name), options.storage) for name in planned.observed}

    def _wide_types(self, planned: Plan) -> dict[str, QuantizedType]:
        """Returns 16-bit types that cover all observed values. The steps of these types are so small that clipping
        would not reduce the error.
        """
        return {
            name: minmax(self._statistics_of(own), STORAGE)
            for name, own in planned.tensors.items()
            if own in self.statistics or own in self._tensors
        }

    def _statistics_of(self, name: str) -> Statistics:
        """Returns the statistics of a tensor. If the operator before it runs in a more precise type, a tensor that only
        contains moved elements of another tensor has its own type. Such a tensor uses the statistics of the original.
        """
        return self.statistics[name if name in self.statistics else self._tensors[name]]

    def _integer(self, planned: Plan, options: Options) -> Form:
        """Returns the tensor types and stored weights with which the layers are written as int8."""
        return self._fitting(Form(self._types(planned, options)), planned.layers, options)

    def _wide(self, planned: Plan, layers: Sequence[Layer], options: Options) -> Form:
        """Returns the tensor types and stored weights of the layers of `planned` that are written as 16x8."""
        return self._fitting(Form(self._wide_types(planned), real_biases=True), layers, options)

    def _fitting(self, form: Form, layers: Sequence[Layer], options: Options) -> Form:
        """Returns `form` with the weights of `layers` fitted to their operands, as that form stores them."""
        if not options.fit:
            return form
        key = (options.choose, options.storage, options.fit, options.equalize, form.real_biases)
        known = self._fitted.setdefault(key, {})
        missing = {key_of(layer) for layer in layers if is_fitted(layer)} - known.keys()
        if missing:
            document, planned = self._make_plan(replace(options, kept=self._kept, wide=(), bfloat16=()))
            own = tuple(layer for layer in planned.layers if is_fitted(layer) and key_of(layer) in missing)
            types = self._wide_types(planned) if form.real_biases else self._types(planned, options)
            parts = (self._session, self._observed, self._ends, self._data)
            known |= fit_layers(document, replace(planned, layers=own), replace(form, types=types), options.fit, *parts)
        return replace(form, fits=known)

    def quantize(self, options: Options) -> Quantized:
        """Quantizes the model, using the collected statistics.

        Raises:
            Unsupported: the model's operator set is too old.
            InvalidInput: one of the layers in `options.bfloat16` cannot run in bfloat16.
        """
        document, planned = self._make_plan(options)
        check_narrow(document, options.bfloat16)
        whole = self._make_plan(replace(options, wide=()))[1] if options.wide else planned
        stored = rewrite(document, planned, self._integer(planned, options))
        raised = [layer for layer in whole.layers if layer.name in options.wide and layer.name not in options.kept]
        widen(document, raised, self._wide(whole, raised, options))
        narrow(document, {*options.bfloat16} - {*options.kept, *options.wide})
        file = document.serialize()
        twins = [stored[name].dequantized if name in stored else name for name in self.names[len(document.outputs) :]]
        return Quantized(file, planned, document.serialize((*document.outputs, *twins)), len(document.outputs))

    def sensitivity(self, options: Options) -> Sensitivity:
        """Measures the loss of quantizing each layer alone. Raises the errors of `quantize`."""
        document, planned = self._make_plan(options)
        forms = self._integer(planned, options), self._wide(planned, planned.layers, options)
        file, names = switched(document, planned, *forms)
        return Sensitivity.measure(self._session, self._session.build(file), self._data, names)

    def narrowable(self, options: Options, names: Collection[str]) -> set[str]:
        """Returns those of `names` whose operators can run in bfloat16."""
        document, _ = self._make_plan(options)
        of_names = [node for node in document.nodes if node.outputs[0] in names]
        return {node.outputs[0] for node in of_names if objection(document, node) is None}

    def measure(self, quantized: Quantized, labels: Sequence[int | None] = (), data: Data | None = None) -> Measured:
        """Runs the float and the quantized model and compares their outputs. By default, the inputs are those of the
        calibration.
        """
        built = self._session.build(quantized.with_tensors)
        sums, answers = self._session.compare(self.float, built, data or self._data)
        self._session.discard(built)
        noise = {name: decibels(*row) for name, row in zip(self.names, sums, strict=True)}
        outputs = self.names[: quantized.outputs]
        layers = {name: value for name, value in noise.items() if name not in outputs}
        real, stored = answers
        return Measured({name: noise[name] for name in outputs}, layers, real, stored, tuple(labels))


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
class Measured:
    """The loss of a quantization, as measured.

    Attributes:
        outputs: the signal-to-noise ratio of each output, in dB. The signal is the float model's output, and the noise
            is the difference from it.
        tensors: the signal-to-noise ratio of each stored tensor. The noise includes the noise of everything before the
            tensor.
        float_answers, answers: the first output for each input, `[inputs, elements]`. These arrays exist as long as the
            scratch directory does.
        labels: the right class of each input, or None if it is unknown.
    """

    outputs: Mapping[str, float]
    tensors: Mapping[str, float]
    float_answers: Array
    answers: Array
    labels: tuple[int | None, ...]

    def to_json(self) -> dict[str, Any]:
        first, second = classes_of(list(self.float_answers)), classes_of(list(self.answers))
        same = accuracy(second, first)
        return {
            "inputs": len(first),
            "outputs_db": {name: finite(value) for name, value in self.outputs.items()},
            "tensors_db": {name: finite(value) for name, value in self.tensors.items()},
            **({"same_class": same} if self.answers.shape[-1] > 1 else {}),
            **(
                {"accuracy": {"float": accuracy(first, self.labels), "quantized": accuracy(second, self.labels)}}
                if any(label is not None for label in self.labels)
                else {}
            ),
        }


def _make_plan(model: bytes, options: Options, by_tensor: Mapping[str, Array]) -> tuple[Document, Plan]:
    document = Document(model)
    if any(is_quantized(node.op_type) for node in document.nodes):
        raise Unsupported("this model is quantized already", hint="octet push and octet compile accept it as it is")
    tidy(document)
    if options.equalize:
        equalize(document)
    spread(document, by_tensor)
    raised = {*options.kept, *options.wide, *options.bfloat16}
    planned = plan(document, options.patterns, raised)
    unknown = raised - {node.outputs[0] for node in document.nodes}
    if unknown:
        raise InvalidInput(
            f"no operator produces {', '.join(sorted(unknown))}", hint="use the names of operators' outputs"
        )
    return document, planned


def _is_made(document: Document, name: str) -> bool:
    """Returns true if an operator produces a tensor that is not an output of the model. (Inputs and outputs are always
    observed.)
    """
    return name not in document.inputs and name not in document.outputs
