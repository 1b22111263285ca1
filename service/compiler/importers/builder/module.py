"""The module that an import creates, and the checks that all imports have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tvm import relax

from service.compiler.importers.names import join_names, printable, unique
from service.compiler.qnn.types import QuantizedType
from service.core.builds.build import Stage
from service.core.errors import InvalidInput, OctetError, Unsupported, UnsupportedOperator
from service.core.models.signature import Quantization, TensorSpec, datatype_of

# Called before each operator is converted, with the operator and the name of its output.
At = Callable[[str, str], None]
Shapes = Mapping[str, Sequence[int]]  # name of an input -> its shape; "" means the only input

LEAVE_OUT = "export the model without it, or define the operator in a dialect (docs/how-to/dialects.md)"


@contextmanager
def import_stage() -> Iterator[None]:
    """Marks errors of the block as errors of the import, unless they name another stage."""
    try:
        yield
    except OctetError as exc:
        exc.stage = exc.stage or Stage.IMPORT
        raise


def param(name: str, shape: Sequence[int], dtype: str) -> relax.Var:
    return relax.Var(name, relax.TensorType(list(shape), dtype))


def build_main(
    builder: relax.BlockBuilder, params: Sequence[relax.Var], convert: Callable[[], Iterable[relax.Expr]]
) -> list[relax.Expr]:
    """Builds the function `main`. `convert` emits its body and returns its results.

    Returns:
        The results as outputs of the function.
    """
    with builder.function("main", list(params)):
        with builder.dataflow():
            outputs = [builder.emit_output(each) for each in convert()]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return outputs


def check_names(given: Mapping[str, object], names: Sequence[str], refusal: type[OctetError] = InvalidInput) -> None:
    """Raises `refusal` if a given shape or value does not belong to one of the inputs `names`."""
    for name in given.keys() - set(names) - ({""} if len(names) == 1 else set()):
        raise refusal(f"the model has no input {name!r}", hint=f"it has: {', '.join(sorted(names))}")


def agreed_shape(label: str, declared: Sequence[int | str | None], given: Sequence[int] | None) -> tuple[int, ...]:
    """Returns the shape for which an input is compiled. If the first dimension has no number, it is a batch and becomes
    1.

    Args:
        declared: the shape in the file. An open dimension is None, or has a name.
        given: the shape that the user gave. Sizes in the file take precedence.

    Raises:
        Unsupported: no shape is given, and another dimension has no number.
        InvalidInput: the given shape contradicts the file.
    """
    if given is not None:
        pairs = zip(given, declared, strict=False)
        fits = len(given) == len(declared) and all(size == own or not isinstance(own, int) for size, own in pairs)
        if not fits or any(size < 1 for size in given):
            raise InvalidInput(f"the input {label} has the shape {list(declared)}, not {list(given)}")
        return tuple(given)
    if not all(isinstance(size, int) for size in declared[1:]):
        shown = [size if isinstance(size, int) else size or "?" for size in declared]
        raise Unsupported(
            f"the input {label} has the shape {shown}: every dimension except the batch needs a number",
            tensor=label,
            hint=f"give the shape: --input-shape {label}=1,…",
        )
    return tuple(size if isinstance(size, int) else 1 for size in declared)


def unique_specs(
    ends: Iterable[tuple[str, str, Sequence[int], Quantization | None]], what: str
) -> tuple[TensorSpec, ...]:
    """Returns a specification for each name, dtype, shape and quantization. Names become printable and unique, and an
    empty one becomes the index of the tensor: `input_0`.
    """
    specs: dict[str, TensorSpec] = {}
    for index, (given, dtype, shape, quantization) in enumerate(ends):
        name = unique(printable(given) or f"{what}_{index}", specs)
        specs[name] = TensorSpec(name, datatype_of(dtype), tuple(shape), quantization)
    return tuple(specs.values())


def quantization_of(quantized: QuantizedType | None) -> Quantization | None:
    """Returns the quantization of a per-tensor type as clients see it."""
    if quantized is None or not quantized.is_per_tensor:
        return None
    return Quantization(quantized.scale, quantized.zero_point)


def count_types(types: Sequence[str]) -> str:
    """Returns the types without repetition, and the number of each: `Loop (2 times), Scan`."""
    counted = Counter(types)
    return join_names([f"{what} ({number} times)" if number > 1 else what for what, number in counted.items()])


def unsupported_operators(
    obstacles: Sequence[tuple[str, str]], total: int, op: str, tensor: str, hint: str | None
) -> UnsupportedOperator:
    """Returns the error for operators that cannot be converted. It lists at most `names.MOST_NAMES` types, and the name
    of the first operator.

    Args:
        obstacles: the type of each operator, with a reason if there is one, and its name.
        total: the number of all operators of the model.
        hint: what to do about these operators; None to advise to leave them out.
    """
    types = count_types([what for what, _ in obstacles])
    where = f"it is {obstacles[0][1]}" if len(obstacles) == 1 else f"the first is {obstacles[0][1]}"
    return UnsupportedOperator(
        f"{len(obstacles)} of {total} operators cannot be compiled: {types}; {where}",
        op=op,
        tensor=tensor,
        hint=hint or LEAVE_OUT,
    )
