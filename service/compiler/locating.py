"""Adds the operator and the tensor to errors, and distinguishes three types of failure.

- `Declined`: a kernel cannot compute an operator. Selection catches it, and uses another kernel or generated code.
- `OctetError`: the model cannot be compiled, and the message states why. `located` adds the operator and the tensor.
- Any other exception is a bug in Octet. `located` converts it to an `InternalError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.core.errors import InternalError, InvalidInput, OctetError, Unsupported


class Declined(Exception):
    """A kernel library has no kernel for an operator. The coverage report contains the message as the reason."""


@contextmanager
def located(op: str, tensor: str) -> Iterator[None]:
    """Adds the operator and the tensor to errors raised in the block, if they do not name them already.

    Args:
        op: the operator as the passes name it, for example `qnn.add`.
        tensor: the operator's result. The names that importers give to results contain the operator's name and its
            index in the file.

    Raises:
        InternalError: the block raised an exception that is neither an `OctetError` nor `Declined`. That exception is
            its cause.
    """
    try:
        yield
    except (Declined, MemoryError):
        raise
    except OctetError as error:
        error.op, error.tensor = error.op or op or None, error.tensor or tensor or None
        raise
    except Exception as error:
        raise InternalError(described(error), op=op or None, tensor=tensor or None) from error


@contextmanager
def declining() -> Iterator[None]:
    """If a formula or a type raises an error in the block, converts it to `Declined`.

    Another implementation may support the operator. If no implementation does, the last one raises the error.
    """
    try:
        yield
    except (InvalidInput, Unsupported) as error:
        raise Declined(error.message) from error


def described(error: BaseException) -> str:
    """Returns the message for an `InternalError`: the type and the last line of `error`.

    Other lines are omitted, because TVM's messages begin with a C++ stack trace.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    return f"Octet failed on a model that may be valid: {text}"
