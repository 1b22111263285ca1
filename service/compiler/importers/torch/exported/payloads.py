"""Parameters, buffers and constants of an exported program.

Each is a record of elements, strided as the program's JSON says (`PayloadMeta` in torch/_export/serde/schema.py). What
the archive keeps as a pickle, tensor subclasses and custom objects, is not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from service.compiler.importers.archive import Archive
from service.compiler.importers.names import printable
from service.compiler.importers.torch.exported import document
from service.compiler.importers.torch.exported.document import field
from service.compiler.importers.torch.tensors import Tensor, strided
from service.core.errors import OctetError, Unsupported

_STRIDED = 7  # `Layout`
_GROWTH, _FLOOR_BYTES = 4, 1 << 20


class Payloads:
    """Tensors by the names under which a model's state has them."""

    def __init__(self, archive: Archive, model: str) -> None:
        self._archive = archive
        self._entries: dict[str, tuple[str, dict[str, Any]]] = {}
        # A record may be several tensors; together they are not to be far more than the file.
        self._budget_bytes = _GROWTH * archive.size_bytes + _FLOOR_BYTES
        for folder, kind in (("weights", "weights"), ("constants", "constants")):
            record = f"data/{folder}/{model}_{kind}_config.json"
            config = field(document.load(archive, record), "config", dict) if record in archive else {}
            self._entries |= {name: (f"data/{folder}", entry) for name, entry in config.items()}

    def tensor(self, name: str) -> Tensor:
        """A parameter, buffer or constant.

        Raises:
            MalformedModel: there is none, or it is no tensor of its record's elements.
            Unsupported: it is one of a kind that NumPy does not have, or a pickle.
        """
        try:
            return self._tensor(name)
        except OctetError as exc:
            exc.tensor = printable(name)
            raise

    def _tensor(self, name: str) -> Tensor:
        if name not in self._entries:
            document.malformed(f"has no elements for {document.shown(name)}")
        folder, entry = self._entries[name]
        meta = entry.get("tensor_meta") if isinstance(entry, dict) else None
        if field(entry, "use_pickle", bool) or meta is None:
            raise Unsupported(
                f"{document.shown(name)} is kept as a pickle, which Octet does not read",
                hint="export the model with plain tensors (no tensor subclasses, no custom objects)",
            )
        if field(meta, "layout", int) != _STRIDED:
            raise Unsupported(f"{document.shown(name)} is a tensor with a layout other than strided")
        dtype, size, stride = _described(name, meta)
        data = self._archive.read(f"{folder}/{field(entry, 'path_name', str)}")
        if len(data) % dtype.itemsize:
            document.malformed(f"has a part of an element of {document.shown(name)}")
        offset = document.dimension(field(meta, "storage_offset", dict))
        elements = strided(data, dtype, -1 if offset is None else offset, size, stride)
        self._budget_bytes -= elements.nbytes
        if self._budget_bytes < 0:
            document.malformed("has constants that add up to far more than the file holds")
        return Tensor(elements)


def _described(name: str, meta: Any) -> tuple[np.dtype[Any], list[int | None], list[int | None]]:
    dtype = document.dtype(field(meta, "dtype", int))
    if dtype not in np.sctypeDict:
        raise Unsupported(f"{document.shown(name)} is a tensor of {dtype}")
    size, stride = ([document.dimension(each) for each in field(meta, part, list)] for part in ("sizes", "strides"))
    return np.dtype(dtype), size, stride
