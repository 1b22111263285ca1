"""Chooses the entry point of a TFLite file with several signatures.

LiteRT's interpreter runs the first subgraph. `with_entry` changes a few bytes of the file so that the subgraph of
another signature is the first one, and so that the file has only this signature. LiteRT then runs the result as Octet
does. This module does not load TVM, because the command line uses it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import tflite

from service.compiler.importers.flatbuffer.verifier import verify
from service.compiler.importers.names import join_names, printable, shortened
from service.compiler.importers.tflite.accessors import text
from service.compiler.importers.tflite.file import schema
from service.core.errors import InvalidInput, Unsupported

_OFFSET, _INT32 = struct.Struct("<I"), struct.Struct("<i")
_VTABLE, _ENTRY_BYTES = 4, 2  # the offset of a vtable's first field, and the size of its entries


def keys_of(data: bytes) -> list[str]:
    """Returns the keys of the signatures in a verified file."""
    model = tflite.Model.GetRootAs(data, 0)
    return [text(model.SignatureDefs(index).SignatureKey()) for index in range(model.SignatureDefsLength())]


def with_entry(data: bytes, key: str) -> bytes:
    """Returns the file with the signature `key` as its only entry point.

    Raises:
        MalformedModel: the file is not well formed.
        InvalidInput: the file has no such signature.
        Unsupported: the signature's subgraph, or the first one, is also run by operators.
    """
    verify(data, schema.MODEL)
    keys = keys_of(data)
    if key not in keys:
        has = f"it has: {join_names([shortened(printable(each)) for each in keys])}" if keys else "it has none"
        raise InvalidInput(f"the file has no signature {key!r}", hint=has)
    return _Patch(data).choose(keys.index(key))


class _Patch:
    """Changes offsets and numbers of a verified file. All sizes stay the same."""

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)
        self._root = tflite.Model.GetRootAs(data, 0)._tab.Pos

    def choose(self, index: int) -> bytes:
        signatures = self._vector(self._root, "Model", "signature_defs")
        assert signatures is not None  # the file has the signature
        chosen = self._target(signatures + index * _OFFSET.size)
        self._point(signatures, chosen)
        _OFFSET.pack_into(self._data, signatures - _OFFSET.size, 1)
        field = self._field(chosen, "SignatureDef", "subgraph_index")
        number = 0 if field is None else _OFFSET.unpack_from(self._data, field)[0]
        if field is not None and number:
            _OFFSET.pack_into(self._data, field, 0)
            self._exchange(number)
            self._drop_metadata()
        return bytes(self._data)

    def _exchange(self, number: int) -> None:
        """Exchanges the first subgraph and `number`."""
        graphs = self._vector(self._root, "Model", "subgraphs")
        count = 0 if graphs is None else _OFFSET.unpack_from(self._data, graphs - _OFFSET.size)[0]
        if graphs is None or number >= count:
            raise Unsupported(f"the signature runs subgraph {number}, but the file has {count} subgraphs")
        if {0, number} & set(self._run_by_operators(graphs, count)):
            raise Unsupported(
                f"the signature runs subgraph {number}, which operators of the file run too",
                hint="convert a model with this signature only",
            )
        places = graphs, graphs + number * _OFFSET.size
        first, other = (self._target(place) for place in places)
        self._point(places[0], other)
        self._point(places[1], first)

    def _run_by_operators(self, graphs: int, count: int) -> Iterator[int]:
        """Yields the numbers of the subgraphs that operators run."""
        tables = {"builtin_options": schema.OPTIONS, "builtin_options_2": schema.OPTIONS_2}
        for index in range(count):
            graph = self._target(graphs + index * _OFFSET.size)
            operators = self._vector(graph, "SubGraph", "operators")
            length = 0 if operators is None else _OFFSET.unpack_from(self._data, operators - _OFFSET.size)[0]
            for each in range(length):
                operator = self._target((operators or 0) + each * _OFFSET.size)
                for options, names in tables.items():
                    selector = self._field(operator, "Operator", f"{options}_type")
                    name = names.get(self._data[selector]) if selector is not None else None
                    table = self._field(operator, "Operator", options) if name else None
                    if name and table is not None:
                        yield from self._numbers(self._target(table), name)

    def _numbers(self, table: int, name: str) -> Iterator[int]:
        for field in schema.TABLES[name]:
            if field == "subgraph" or field.endswith("subgraph_index"):
                place = self._field(table, name, field)
                yield 0 if place is None else _INT32.unpack_from(self._data, place)[0]

    def _drop_metadata(self) -> None:
        """Removes the metadata, which describes the inputs and outputs of the subgraph that was the first one."""
        metadata = self._vector(self._root, "Model", "metadata")
        if metadata is not None:
            _OFFSET.pack_into(self._data, metadata - _OFFSET.size, 0)

    def _field(self, table: int, name: str, field: str) -> int | None:
        """Returns the position of a table's field, or None if the table omits it."""
        vtable = table - _INT32.unpack_from(self._data, table)[0]
        entry = _VTABLE + schema.TABLES[name][field][0] * _ENTRY_BYTES
        (size,) = struct.unpack_from("<H", self._data, vtable)
        offset = struct.unpack_from("<H", self._data, vtable + entry)[0] if entry < size else 0
        return table + offset if offset else None

    def _vector(self, table: int, name: str, field: str) -> int | None:
        """Returns the position of a vector's first item."""
        place = self._field(table, name, field)
        return None if place is None else self._target(place) + _OFFSET.size

    def _target(self, place: int) -> int:
        return place + int(_OFFSET.unpack_from(self._data, place)[0])

    def _point(self, place: int, target: int) -> None:
        """Writes the offset from `place` to `target`, which must come after it."""
        if target <= place:
            raise Unsupported("the file's tables are in an order in which no signature can be chosen")
        _OFFSET.pack_into(self._data, place, target - place)
