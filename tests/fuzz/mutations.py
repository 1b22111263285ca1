"""Mutations that keep a file's structure. The mutated file then reaches the code after the reader.

If a byte in a zip archive changes, its checksum is wrong. If a byte is added to a protobuf, the lengths of all
enclosing messages are wrong. So archives are changed by record, protobufs by field and FlatBuffers by member, and are
then written again.
"""

from __future__ import annotations

import copy
import io
import math
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.detect import EXECUTORCH, MXNET, ONNX, OPENVINO, PT2, TFLITE, TORCHSCRIPT
from tests.support.onnx_builder import message, varint
from tests.support.tflite_builder import serialize
from tests.support.torchscript import archive

Mutate: TypeAlias = Callable[[bytes], bytes]  # the fuzzer's own mutation of unstructured bytes
Mutator: TypeAlias = Callable[[bytes, random.Random, Mutate], bytes]
Reducer: TypeAlias = Callable[[bytes], Iterator[bytes]]
Fields: TypeAlias = "list[tuple[int, int | bytes | Fields]]"  # tags and values of a protobuf

_ODD = (0, 1, 2, 127, 128, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
_ODD_TEXT = (*(str(number) for number in _ODD), "-1", "1e400", "NaN", "null", "[]", "{}", '""', "None", "-9" * 40)
_TOKEN = re.compile(r'"[^"\n]*"|-?\d[\w.+-]*|\w+|[^\w\s]')
_DEEPEST = 12  # Limit of nested messages; ONNX nests up to ten.
_MOST_ITEMS = 64  # Limit of the items of a vector that are changed; the elements of a large constant are equivalent.
_BORING = 10  # Other records are changed this much more often than elements of tensors.


def mutated_flatbuffer(data: bytes, generator: random.Random, mutate: Mutate) -> bytes:
    """Changes, removes or replaces a member of a table or an item of a vector, or mutates bytes of the file."""
    if generator.random() < 0.5:
        return mutate(data)
    try:
        model = schema.ModelT.InitFromPackedBuf(data)
        for _ in range(generator.randint(1, 3)):
            _change(list(_members(model)), generator)
        return serialize(model)
    except Exception:  # LiteRT's code does not check its input; bytes are mutated instead
        return mutate(data)


def mutated_bytes(data: bytes, _: random.Random, mutate: Mutate) -> bytes:
    """Mutates bytes of the file."""
    return mutate(data)


def _change(members: list[tuple[Any, Any]], generator: random.Random) -> None:
    """Changes one member: a field of a table, an item of a vector, or a whole vector of numbers."""
    owner, key = generator.choice(members)
    value = _get(owner, key)
    like = [each for each in (_get(*position) for position in members) if type(each) is type(value)]
    new: Any
    if isinstance(value, list | np.ndarray) and generator.random() < 0.8:
        new = list(value)
        position, spare = (
            generator.randrange(len(new) + 1),
            [*new[:_MOST_ITEMS], *([] if _is_of_tables(new) else _ODD[:8])],
        )
        new[position : position + generator.randrange(2)] = generator.sample(
            spare, min(len(spare), generator.randrange(3))
        )
    elif isinstance(value, int):
        new = generator.choice([*_ODD[:8], -1, value + 1, value - 1, generator.choice(like)])
    elif isinstance(value, float):
        new = generator.choice([0.0, -1.0, 1e-45, 3e38, math.inf, math.nan, generator.choice(like)])
    else:
        new = generator.choice([None, *like])
    if isinstance(owner, list):
        owner[key] = new
    else:
        setattr(owner, key, new)


def _members(owner: Any) -> Iterator[tuple[Any, Any]]:
    for key in range(len(owner)) if isinstance(owner, list) else vars(owner):
        value = _get(owner, key)
        yield owner, key
        if isinstance(value, list) or hasattr(value, "__dict__"):
            yield from _members(value)


def _get(owner: Any, key: Any) -> Any:
    return owner[key] if isinstance(owner, list) else getattr(owner, key)


def _is_of_tables(items: list[Any]) -> bool:
    return bool(items) and hasattr(items[0], "__dict__")


def mutated_archive(data: bytes, generator: random.Random, mutate: Mutate) -> bytes:
    """Damages or removes a record, or gives it the name of another one."""
    records = _records(data)
    if not records or generator.random() < 0.02:
        return mutate(data)
    weights = [_BORING if _is_text(name, content) else 1 for name, content in records.items()]
    name = generator.choices(list(records), weights)[0]
    match generator.randrange(40):
        case 0:
            del records[name]
        case 1:
            records[name] = records[generator.choice(list(records))]
        case _ if _is_text(name, records[name]) and not name.endswith(".pkl") and generator.random() < 0.7:
            records[name] = _mutated_text(records[name].decode("latin-1"), generator).encode("latin-1")
        case _:
            records[name] = mutate(records[name])
    return archive(records, folder="")


def mutated_protobuf(data: bytes, generator: random.Random, mutate: Mutate) -> bytes:
    """Changes, removes, duplicates or replaces one field of any message."""
    tree = fields_of(data)
    if not tree or generator.random() < 0.1:
        return mutate(data)
    positions = list(_places(tree))
    fields, position = generator.choice(positions)
    tag, value = fields[position]
    others, other = generator.choice(positions)
    copied = copy.deepcopy(others[other])  # the copied value may be a message that contains the field
    match generator.randrange(8):
        case 0:
            del fields[position]
        case 1:
            fields.insert(position, (tag, value))
        case 2:
            fields[position] = copied
        case 3:
            fields.insert(position, copied)
        case _ if isinstance(value, int):
            fields[position] = tag, generator.choice([*_ODD, value + 1, max(0, value - 1)])
        case _:
            fields[position] = tag, mutate(value if isinstance(value, bytes) else bytes_of(value))
    return bytes_of(tree)


def fields_of(data: bytes, depth: int = 0) -> Fields | None:
    """Returns the message in `data` and its nested messages in a form that `bytes_of` converts back to `data`. Returns
    None if `data` is not a message.
    """
    found: Fields = []
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire = tag & 7
        if not 8 <= tag < 1 << 12 or wire not in (0, 1, 2, 5):
            return None
        value, position = _varint(data, position) if wire in (0, 2) else (0, position)
        if value < 0:
            return None
        if wire == 0:
            found.append((tag, value))
            continue
        size = {1: 8, 2: value, 5: 4}[wire]
        content, position = data[position : position + size], position + size
        if len(content) < size:
            return None
        inner = fields_of(content, depth + 1) if wire == 2 and size > 1 and depth < _DEEPEST else None
        found.append((tag, inner or content))
    return found


def bytes_of(fields: Fields) -> bytes:
    return b"".join(_field(tag, value) for tag, value in fields)


def _field(tag: int, value: int | bytes | Fields) -> bytes:
    if isinstance(value, int):
        return varint(tag) + varint(value)
    content = value if isinstance(value, bytes) else bytes_of(value)
    return message(tag >> 3, content) if tag & 7 == 2 else varint(tag) + content


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and the position after it. The position is -1 if the number is incomplete, or longer than
    `varint` would write it.
    """
    value = 0
    for index, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value if (byte or not index) and value < 1 << 64 else -1), position + index + 1
    return -1, len(data)


def _places(fields: Fields) -> Iterator[tuple[Fields, int]]:
    for index, (_, value) in enumerate(fields):
        yield fields, index
        if isinstance(value, list):
            yield from _places(value)


def _records(data: bytes) -> dict[str, bytes]:
    """Returns the records of an archive, or an empty dictionary if `data` is not an archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            return {name: file.read(name) for name in file.namelist()}
    except Exception:  # for damaged archives, zipfile raises many types of exceptions
        return {}


def _is_text(name: str, content: bytes) -> bool:
    return name.endswith((".pkl", ".params")) or not set(content[:200]) - {*range(32, 127), 9, 10, 13}


def _mutated_text(text: str, generator: random.Random) -> str:
    """Replaces, removes or duplicates a token or a line of JSON or TorchScript."""
    parts = text.splitlines(keepends=True) if generator.random() < 0.2 else _TOKEN.findall(text)
    if not parts:
        return generator.choice(_ODD_TEXT)
    part: str = generator.choice(parts)
    new: str = generator.choice([generator.choice(parts), generator.choice(_ODD_TEXT), "", part + part])
    occurrences = [match.start() for match in re.finditer(re.escape(part), text)]
    start = generator.choice(occurrences)
    return text[:start] + new + text[start + len(part) :]


def reduced_bytes(data: bytes) -> Iterator[bytes]:
    """Yields the bytes with some of them removed, the largest parts first."""
    size = len(data) // 2
    while size:
        for start in range(0, len(data), size):
            yield data[:start] + data[start + size :]
        size //= 2


def reduced_archive(data: bytes) -> Iterator[bytes]:
    records = _records(data)
    for name in records:
        yield archive({other: content for other, content in records.items() if other != name}, folder="")
    for name, content in records.items():
        for smaller in reduced_bytes(content):
            yield archive({**records, name: smaller}, folder="")


def reduced_protobuf(data: bytes) -> Iterator[bytes]:
    tree = fields_of(data)
    if not tree:
        yield from reduced_bytes(data)
        return
    for fields, position in list(_places(tree)):
        field = fields.pop(position)
        yield bytes_of(tree)
        fields.insert(position, field)


MUTATORS: dict[str, Mutator] = {
    TFLITE: mutated_flatbuffer,
    ONNX: mutated_protobuf,
    TORCHSCRIPT: mutated_archive,
    PT2: mutated_archive,
    MXNET: mutated_archive,
    OPENVINO: mutated_archive,
    EXECUTORCH: mutated_bytes,
}
REDUCERS: dict[str, Reducer] = {
    TFLITE: reduced_bytes,
    ONNX: reduced_protobuf,
    TORCHSCRIPT: reduced_archive,
    PT2: reduced_archive,
    MXNET: reduced_archive,
    OPENVINO: reduced_archive,
    EXECUTORCH: reduced_bytes,
}
