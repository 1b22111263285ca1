"""Numbers, text and lists in TorchScript, such as sizes, strides and flags. All of them are known while importing."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Unknown, Value
from service.core.errors import MalformedModel, Unsupported

_LONGEST = 1 << 16  # the most elements of a list
_LARGEST = 1 << 63  # the limit for the magnitude of an integer
LITERALS: Mapping[str, Any] = {"inf": math.inf, "nan": math.nan}
_SIMPLE = (bool, int, float, str, type(None))


def are_scalars(arguments: Sequence[Any]) -> bool:
    """Returns true if the arguments, and lists among them, contain no computed tensor. A constant without dimensions
    counts as a number, because traces divide sizes by such constants.
    """
    return not any(_is_tensor(argument) or _holds_tensors(argument) for argument in arguments)


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, Value | Unknown) or (isinstance(argument, Tensor) and not _is_number(argument))


def _is_number(constant: Tensor) -> bool:
    return constant.data.ndim == 0 and constant.quantization is None


def _holds_tensors(argument: Any) -> bool:
    return isinstance(argument, list | tuple) and any(isinstance(item, Value | Unknown | Tensor) for item in argument)


def item(whole: Any, index: Any) -> Any:
    """Returns `whole[index]`."""
    if isinstance(whole, Unknown) or isinstance(index, Unknown):
        return whole if isinstance(whole, Unknown) else index
    try:
        if isinstance(whole, list | tuple) and type(index) is int:
            return whole[index]
        if isinstance(whole, dict) and isinstance(index, str | int):
            return whole[index]
    except (IndexError, KeyError) as exc:
        raise Unsupported(
            "the model's code reads an element that does not exist for inputs of this shape",
            hint="check the shape of the input",
        ) from exc
    raise Unsupported("the model's code reads single elements of a tensor, which cannot be compiled")


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if any(isinstance(argument, Unknown) for argument in arguments):
            return next(argument for argument in arguments if isinstance(argument, Unknown))
        try:
            result = function(*arguments, **named)
        except (TypeError, ValueError, ArithmeticError, IndexError, KeyError, AttributeError) as exc:
            raise Unsupported(
                f"the model's code computes with numbers or lists in a way that Octet does not evaluate: {exc}"[:300],
                hint="trace the model (torch.jit.trace), or export it (torch.export)",
            ) from exc
        if isinstance(result, int) and not -_LARGEST <= result < _LARGEST:
            raise MalformedModel("the archive's code computes an integer with more than 64 bits")
        return result

    return call


def _number(value: Any) -> int | float:
    if isinstance(value, Tensor) and _is_number(value):
        value = value.data.item()
    if not isinstance(value, int | float):
        raise TypeError
    return value


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda a, b: function(_number(a), _number(b))


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def compare(a: Any, b: Any) -> bool:
        # Only lists of numbers are repeated: nested lists could grow to 2**depth elements.
        if not (_is_flat(a) and _is_flat(b)):
            raise TypeError
        return bool(function(a, b))

    return compare


def _is_flat(value: Any) -> bool:
    return isinstance(value, _SIMPLE) or (isinstance(value, list) and all(isinstance(each, _SIMPLE) for each in value))


def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    if isinstance(a, list) and isinstance(b, list):
        return _extend(list(a), b)
    return _number(a) + _number(alpha) * _number(b)


def _subtract(a: Any, b: Any, alpha: Any = 1) -> Any:
    return _number(a) - _number(alpha) * _number(b)


def _multiply(a: Any, b: Any) -> Any:
    """Multiplies two numbers; or repeats a list."""
    if isinstance(a, list) or isinstance(b, list):
        items, times = (a, b) if isinstance(a, list) else (b, a)
        if type(times) is not int or times * len(items) > _LONGEST:
            raise TypeError
        return items * times
    return _number(a) * _number(b)


def _divide(a: Any, b: Any, rounding_mode: Any = None) -> Any:
    """Computes `aten::div`. The quotient of whole numbers is real unless a rounding mode is given (BinaryOps.cpp,
    `div_trunc_kernel` and `div_floor_kernel`).
    """
    dividend, divisor = _number(a), _number(b)
    if rounding_mode is None:
        return dividend / divisor
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(f"unknown rounding mode {str(rounding_mode)[:20]!a}")
    floor = dividend // divisor
    if rounding_mode == "floor" or floor * divisor == dividend or floor >= 0:
        return floor
    return floor + 1


def _modulo(a: Any, b: Any) -> Any:
    """Computes `aten::fmod`: the remainder has the sign of the dividend."""
    dividend, divisor = _number(a), _number(b)
    if isinstance(dividend, float) or isinstance(divisor, float):
        return math.fmod(dividend, divisor)
    return dividend - divisor * _divide(dividend, divisor, "trunc")


def _power(base: int | float, exponent: int | float) -> int | float:
    if abs(base) > 1 and abs(exponent) > 64:  # a whole number might need more than 64 bits
        raise ValueError("the power is too large")
    result: int | float = base**exponent
    return result


def _append(items: Any, value: Any) -> Any:
    return _extend(items, [value])


def _extend(items: Any, more: Any) -> Any:
    if not (isinstance(items, list) and isinstance(more, list)):
        raise TypeError
    if len(items) + len(more) > _LONGEST:
        raise MalformedModel("the archive's code computes a list that is too long")
    items.extend(list(more))
    return items


def _slice(items: Any, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    if not isinstance(items, list):
        raise TypeError
    return items[start:end:step]


def _scalar(value: Any) -> Any:
    """Returns the only element of a constant."""
    if isinstance(value, Tensor):
        if value.data.size != 1:
            raise TypeError
        return value.data.reshape(-1)[0].item()
    if not isinstance(value, bool | int | float):
        raise TypeError
    return value


def _integer(value: Any) -> int:
    return int(_scalar(value))


def _raise(message: Any = "", *_: Any) -> Any:
    text = ascii(str(message)[:200]) if isinstance(message, str) else ""
    raise Unsupported(f"the model itself rejects its input: {text}", hint="check the shape of the input")


def _length(value: Any) -> int:
    if not isinstance(value, list | tuple | dict | str):
        raise TypeError
    return len(value)


_PURE: dict[str, Callable[..., Any]] = {
    "aten::len": _length,
    "aten::add": _add,
    "aten::sub": _subtract,
    "aten::rsub": lambda a, b, alpha=1: _subtract(b, a, alpha),
    "aten::mul": _multiply,
    "aten::div": _divide,
    "aten::divide": _divide,
    "aten::true_divide": _arithmetic(operator.truediv),
    "aten::floor_divide": _arithmetic(operator.floordiv),
    "aten::floordiv": _arithmetic(operator.floordiv),
    "aten::__floordiv__": _arithmetic(operator.floordiv),
    "aten::remainder": _arithmetic(operator.mod),
    "aten::fmod": _modulo,
    "aten::abs": lambda a: abs(_number(a)),
    "aten::pow": lambda a, b: _power(_number(a), _number(b)),
    "aten::sqrt": lambda a: math.sqrt(_number(a)),
    "aten::trunc": lambda a: math.trunc(_number(a)),
    "aten::neg": lambda a: -_number(a),
    "aten::detach": _scalar,
    "aten::device": lambda *_: None,
    "aten::ceil": lambda a: math.ceil(_number(a)),
    "aten::floor": lambda a: math.floor(_number(a)),
    "aten::eq": _comparison(operator.eq),
    "aten::ne": _comparison(operator.ne),
    "aten::lt": _arithmetic(operator.lt),
    "aten::le": _arithmetic(operator.le),
    "aten::gt": _arithmetic(operator.gt),
    "aten::ge": _arithmetic(operator.ge),
    "aten::__is__": lambda a, b: a is b,
    "aten::__isnot__": lambda a, b: a is not b,
    "aten::__not__": lambda a: not _scalar(a),
    "aten::__and__": lambda a, b: bool(_scalar(a) and _scalar(b)),
    "aten::__or__": lambda a, b: bool(_scalar(a) or _scalar(b)),
    "aten::append": _append,
    "aten::extend": _extend,
    "aten::list": lambda items: list(items) if isinstance(items, list | tuple) else _raise(),
    "aten::slice": _slice,
    "aten::__getitem__": item,
    "aten::format": lambda *_: "",
    "aten::warn": lambda *_: None,
    "aten::IntImplicit": _integer,
    "aten::FloatImplicit": lambda value: float(_scalar(value)),
    "aten::Int": _integer,
    "prim::NumToTensor": _scalar,
    "prim::RaiseException": _raise,
    "prim::int": _integer,
    "prim::float": lambda value: float(_scalar(value)),
    "prim::bool": lambda value: bool(_scalar(value)),
    "prim::min": lambda *values: min(map(_number, values)),
    "prim::max": lambda *values: max(map(_number, values)),
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {name: _checked(function) for name, function in _PURE.items()}
