"""Generates the tables of the C++ code that Python defines: error types and datatypes. `make messages` writes them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from service.api.documents import title_of
from service.api.grpc.status import StatusCode
from service.api.grpc.status import status_of as grpc_status_of
from service.api.statuses import may_be_retried, status_of
from service.core import errors
from service.core.errors import OctetError
from service.core.models.signature import DATATYPES

ERROR_TYPES = "service/native/plane/text/error_types.h"
DATATYPES_FILE = "service/native/runtime/datatypes.h"

# The errors that the data plane itself reports. It passes on other errors as the control plane sent them.
_ERRORS: tuple[type[OctetError], ...] = (
    errors.InvalidInput,
    errors.InvalidTensor,
    errors.Unauthorized,
    errors.Forbidden,
    errors.CrossSite,
    errors.ForeignHost,
    errors.NotFound,
    errors.Conflict,
    errors.UnknownSequence,
    errors.TooLarge,
    errors.UnsupportedFormat,
    errors.Unsupported,
    errors.QueueFull,
    errors.RateLimited,
    errors.QuotaExceeded,
    errors.NotReady,
    errors.MemoryFull,
    errors.Restarting,
    errors.DeadlinePassed,
)
# The errors without a class: enumerator, code, title, HTTP status, gRPC status. See `service.api.problems`.
_WITHOUT_CLASS = (
    ("kMethodNotAllowed", "method_not_allowed", "Method Not Allowed.", 405, StatusCode.UNIMPLEMENTED),
    ("kInternal", "internal_error", "Internal error.", 500, StatusCode.INTERNAL),
)
_WIDTH = 120


def generated() -> dict[str, str]:
    """Returns the text of each generated file, by its path."""
    return {ERROR_TYPES: _error_types(), DATATYPES_FILE: _datatypes()}


def _error_types() -> str:
    enumerators = [*(f"k{kind.__name__}" for kind in _ERRORS), *(row[0] for row in _WITHOUT_CLASS)]
    rows = [_row_of(kind) for kind in _ERRORS]
    rows += [_row(code, title, http, grpc, False) for _, code, title, http, grpc in _WITHOUT_CLASS]
    return (
        "// Written by `make messages` from service/core/errors.py: the errors that the data plane reports.\n"
        "#pragma once\n\n"
        "#include <cstdint>\n"
        "#include <string_view>\n\n"
        "namespace octet::plane {\n\n"
        "enum class ErrorType : uint8_t {\n" + "".join(f"  {name},\n" for name in enumerators) + "};\n\n"
        "struct ErrorTypeFacts {\n"
        "  std::string_view code;  // stable identifier for programs: docs/reference/errors.md\n"
        "  std::string_view title;\n"
        "  int http;             // HTTP status\n"
        "  int grpc;             // gRPC status\n"
        "  bool may_be_retried;  // the same request may succeed later\n"
        "};\n\n"
        "// In the order of `ErrorType`.\n"
        "inline constexpr ErrorTypeFacts kErrorTypes[] = {\n" + "".join(rows) + "};\n\n"
        "}  // namespace octet::plane\n"
    )


def _row_of(kind: type[OctetError]) -> str:
    error = kind()
    return _row(kind.code, title_of(kind), status_of(error), grpc_status_of(error), may_be_retried(error))


def _row(code: str, title: str, http: int, grpc: int, retried: bool) -> str:
    lines = [f'    {{"{code}", "{title}",']
    for number in (f"{http},", f"{int(grpc)},", f"{str(retried).lower()}}},"):
        if len(lines[-1]) + 1 + len(number) <= _WIDTH:
            lines[-1] += f" {number}"
        else:
            lines.append(f"     {number}")
    return "\n".join(lines) + "\n"


def _datatypes() -> str:
    return (
        "// Written by `make messages` from service/core/models/signature.py: the element types of tensors, by\n"
        "// their names in the Open Inference Protocol.\n"
        "#pragma once\n\n"
        "#include <stdint.h>\n\n"
        "namespace octet {\n\n"
        "// No model has tensors of the last two: kBytes is the type of pictures in requests, and kOther is any\n"
        "// unsupported type.\n"
        "enum class Datatype : uint8_t {\n" + "".join(f"  {name},\n" for name in _enumerators()) + "};\n\n"
        "struct DatatypeFacts {\n"
        "  const char* name;\n"
        "  int64_t bytes;  // size of an element\n"
        "  bool is_real;\n"
        "  int64_t least, greatest;  // range of integer types\n"
        "};\n\n"
        "// In the order of `Datatype`.\n"
        "inline constexpr DatatypeFacts kDatatypes[] = {\n" + "".join(map(_datatype_row, DATATYPES)) + "};\n\n"
        "}  // namespace octet\n"
    )


def _enumerators() -> Iterator[str]:
    yield from (f"k{name.capitalize()}" for name in (*DATATYPES, "BYTES", "OTHER"))


def _datatype_row(name: str) -> str:
    dtype = np.dtype(DATATYPES[name])
    least, greatest = "0", "0"
    if dtype.kind == "b":
        greatest = "1"
    elif dtype.kind in "iu":
        prefix = dtype.name.upper()
        least, greatest = ("0" if dtype.kind == "u" else f"{prefix}_MIN"), f"{prefix}_MAX"
    return f'    {{"{name}", {dtype.itemsize}, {str(dtype.kind == "f").lower()}, {least}, {greatest}}},\n'
