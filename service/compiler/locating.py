"""Names the operator and the tensor of an error, and keeps three kinds of failure apart.

- `Declined`: a kernel cannot compute an operator. Selection catches it, and another kernel or generated code is used.
- An `OctetError`: the model cannot be compiled, and the message says why. `located` adds the operator and the tensor.
- Any other exception is a defect of Octet. `located` raises `InternalError` instead, which says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.core.errors import InternalError, InvalidInput, OctetError, Unsupported


class Declined(Exception):
    """A kernel library has no kernel for this; the text says why, and stands in the coverage report."""


@contextmanager
def located(op: str, tensor: str) -> Iterator[None]:
    """Adds the operator and the tensor to errors that are raised inside and do not name them.

    Args:
        op: the operator, as the passes name it: `qnn.add`.
        tensor: its result. The names that importers give contain the operator's name and place in the file.

    Raises:
        InternalError: for an exception that is none of ours, which is its cause.
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
    """Raises `Declined` for a formula or a type that refuses an operator: another way may compute it, and if none
    does, the last one raises the error."""
    try:
        yield
    except (InvalidInput, Unsupported) as error:
        raise Declined(error.message) from error


def described(error: BaseException) -> str:
    """The message of an `InternalError`: the type and the last line of `error`. Those of TVM begin with a C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    return f"Octet failed on a model that may be valid: {text}"
