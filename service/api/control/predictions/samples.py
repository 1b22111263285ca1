"""The bodies of predictions by task: each contains the data of one or several predictions."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.api.control.predictions.base64_files import decode_file
from service.core.errors import InvalidInput, TooLarge, UnsupportedFormat
from service.core.models.picture import format_of
from service.core.models.sound import is_wav

if TYPE_CHECKING:  # NumPy is imported when it is used
    from service.runtime.table import Row

MAX_SAMPLES = 1024  # the limit for the samples of one request
_HINT = (
    "send application/json, text/csv, text/plain or a picture's type, such as image/png, as Content-Type, or a file as "
    "curl -F file=@FILE does"
)
_MEMBERS = "image, sound, text, values, inputs or rows; see docs/how-to/http.md"
_TEXT, _PAIR = "text", "text_pair"


@dataclass(frozen=True)
class Sample:
    """The data of one prediction. One of the members is set, or `text` and `pair`.

    Attributes:
        pair: the second text of a pair, whose first is `text`.
        values: real values for the only input, in nested lists or one list.
        inputs: real values for each input, by name; or the bytes of a file, for the input that it is for.
        row: a row of a table.
    """

    picture: bytes | None = None
    text: str | None = None
    pair: str | None = None
    values: Any = None
    inputs: Mapping[str, Any] | None = None
    row: Row | None = None


def samples_of(body: bytes, content_type: str) -> tuple[list[Sample], bool]:
    """Returns the samples in a body, and true if the body contains a list of samples, even one with a single sample.

    Raises:
        InvalidInput: the body is malformed.
        TooLarge: the body has more than `MAX_SAMPLES` samples.
        UnsupportedFormat: the body has another type.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if format_of(body) is not None or is_wav(body) or kind.startswith("image/"):
        return [Sample(picture=body)], False
    if kind in ("text/csv", "application/csv"):
        return limited(_rows(_text_of(body))), True
    if kind == "text/plain":
        return [Sample(text=_text_of(body))], False
    if kind in ("application/json", "text/json") or kind.endswith("+json") or body.lstrip()[:1] in (b"{", b"["):
        return _samples_in(_json_of(body, kind))
    if not body:
        raise InvalidInput("the body is empty", hint=_HINT)
    what = f"the Content-Type is {kind!r}" if kind else "the Content-Type is missing"
    raise UnsupportedFormat(f"{what}, and the body is not a picture, a WAV or JSON", hint=_HINT)


def limited(samples: list[Sample]) -> list[Sample]:
    """Returns the samples. Raises `TooLarge` if there are more than `MAX_SAMPLES`."""
    _check_count(len(samples))
    return samples


def _check_count(samples: int) -> None:
    if samples > MAX_SAMPLES:
        raise TooLarge(f"the request has {samples} samples, but the limit is {MAX_SAMPLES}")


def _samples_in(members: Any) -> tuple[list[Sample], bool]:
    if not isinstance(members, dict):
        raise InvalidInput("the JSON is not an object", hint=f"send an object with {_MEMBERS}")
    if _TEXT in members:
        return _texts_in(members)
    if len(members) != 1:
        found = f"the members {', '.join(map(repr, members))}" if members else "no member"
        raise InvalidInput(f"the JSON has {found}", hint=f"send one member: {_MEMBERS}")
    ((name, content),) = members.items()
    match name:
        case "image" | "sound":
            if isinstance(content, list):
                _check_count(len(content))  # before the files are decoded
                files = [decode_file(name, each, f"{name}[{index}]") for index, each in enumerate(content)]
                return [Sample(picture=each) for each in files], True
            return [Sample(picture=decode_file(name, content))], False
        case "values":
            return [Sample(values=content)], False
        case "inputs":
            return [Sample(inputs=_checked(name, content, dict, "an object with the name of each input"))], False
        case "rows":
            rows = _checked(name, content, list, "a list")
            return limited([_row(each, index) for index, each in enumerate(rows)]), True
    raise InvalidInput(f"the member {name!r} of the JSON is not known", hint=f"send {_MEMBERS}")


def _texts_in(members: Mapping[str, Any]) -> tuple[list[Sample], bool]:
    """Returns the texts or the pairs of texts of an object with the member `text`."""
    if other := next((name for name in members if name not in (_TEXT, _PAIR)), None):
        raise InvalidInput(f"the JSON has the members 'text' and {other!r}", hint=f"send only one of {_MEMBERS}")
    text, pair = members[_TEXT], members.get(_PAIR)
    form = "a string, or a list of strings"
    if isinstance(text, str):
        return [
            Sample(text=text, pair=None if pair is None else _checked(_PAIR, pair, str, "a string, as text is"))
        ], False
    if not isinstance(text, list) or not all(isinstance(each, str) for each in text):
        raise InvalidInput(f"text is not {form}")
    if pair is None:
        return limited([Sample(text=each) for each in text]), True
    if not isinstance(pair, list) or not all(isinstance(each, str) for each in pair):
        raise InvalidInput(f"{_PAIR} is not a list of strings, as text is")
    if len(pair) != len(text):
        raise InvalidInput(f"text has {len(text)} elements, but {_PAIR} has {len(pair)}")
    return limited([Sample(text=first, pair=second) for first, second in zip(text, pair, strict=True)]), True


def _checked(name: str, value: Any, wanted: type, form: str) -> Any:
    if not isinstance(value, wanted):
        raise InvalidInput(f"{name} is not {form}")
    return value


def _row(row: Any, index: int) -> Sample:
    if isinstance(row, str):
        return Sample(text=row)
    if isinstance(row, dict):
        if _TEXT in row and row.keys() <= {_TEXT, _PAIR} and all(isinstance(each, str) for each in row.values()):
            return Sample(text=row[_TEXT], pair=row.get(_PAIR))
        if len(row) == 1 and isinstance(value := row.get("image", row.get("sound")), str):
            return Sample(picture=decode_file(next(iter(row)), value, f"row {index}"))
        return Sample(inputs=row)
    if row is None:
        raise InvalidInput(f"row {index} is null")
    return Sample(values=row)


def _rows(text: str) -> list[Sample]:
    """Returns the rows of CSV: the texts in the columns `text` and `text_pair`, or the cells, which are compared with
    the model later.
    """
    from service.runtime.table import rows_of

    return [_row_sample(row) for row in itertools.islice(rows_of(io.StringIO(text, newline="")), MAX_SAMPLES + 1)]


def _row_sample(row: Row) -> Sample:
    header = list(row.header or [])
    if _TEXT not in header:
        return Sample(row=row)
    texts = [_cell(row, header, name) for name in (_TEXT, _PAIR) if name in header]
    return Sample(text=texts[0], pair=texts[1] if len(texts) > 1 else None)


def _cell(row: Row, header: Sequence[str], name: str) -> str:
    index = header.index(name)
    if index >= len(row.cells):
        raise InvalidInput(f"row {row.number} of the table has no cell in the column {name!r}")
    return row.cells[index]


def _text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8 text at byte {error.start}") from error


def _json_of(body: bytes, content_type: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        hint = f"the Content-Type is {content_type!r}; {_HINT}" if content_type else _HINT
        raise InvalidInput(f"the body is not well-formed JSON: {error}", hint=hint) from error
