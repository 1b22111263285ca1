"""The parameters, buffers and constants of an exported program.

Each is a record with elements; the program's JSON contains its strides (`PayloadMeta` in
torch/_export/serde/schema.py). Tensor subclasses are stored as pickles (`subclasses`). Other pickles are not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from service.compiler.importers.archive import Archive
from service.compiler.importers.names import printable
from service.compiler.importers.torch.exported import document
from service.compiler.importers.torch.exported.document import field
from service.compiler.importers.torch.exported.subclasses import inner_tensors
from service.compiler.importers.torch.tensors import Tensor, strided
from service.core.errors import OctetError, Unsupported

_STRIDED = 7  # `Layout`
_GROWTH, _FLOOR_BYTES = 4, 1 << 20


class Payloads:
    """Tensors, by their names in the model's state dictionary."""

    def __init__(self, archive: Archive, model: str) -> None:
        self._archive = archive
        self._entries: dict[str, tuple[str, dict[str, Any]]] = {}
        # Several tensors may use one record. Together they must not be much larger than the file.
        self._budget_bytes = _GROWTH * archive.size_bytes + _FLOOR_BYTES
        for folder, kind in (("weights", "weights"), ("constants", "constants")):
            record = f"data/{folder}/{model}_{kind}_config.json"
            config = field(document.load(archive, record), "config", dict) if record in archive else {}
            self._entries |= {name: (f"data/{folder}", entry) for name, entry in config.items()}

    def tensor(self, name: str) -> Tensor:
        """Returns a parameter, buffer or constant.

        Raises:
            MalformedModel: the tensor does not exist, or does not fit its record.
            Unsupported: NumPy does not have the tensor's element type, the tensor is stored as a pickle, or constants
                repeat elements too often.
        """
        try:
            return self._tensor(name)
        except OctetError as exc:
            exc.tensor = printable(name)
            raise

    def is_subclass(self, name: str) -> bool:
        """Returns true if the tensor is stored as a pickle of a tensor subclass."""
        _, entry = self._entries.get(name, ("", {}))
        return bool(isinstance(entry, dict) and entry.get("use_pickle") and entry.get("tensor_meta"))

    def inner_tensors(self, name: str) -> dict[str, Tensor]:
        """Returns the tensors inside a tensor subclass. Raises the errors of `tensor`."""
        folder, entry = self._entries[name]
        try:
            found = inner_tensors(self._archive.read(f"{folder}/{field(entry, 'path_name', str)}"))
        except OctetError as exc:
            exc.tensor = printable(name)
            raise
        self._charge(name, sum(each.data.nbytes for each in found.values()))
        return found

    def _charge(self, name: str, size_bytes: int) -> None:
        self._budget_bytes -= size_bytes
        if self._budget_bytes < 0:
            raise Unsupported(
                f"{document.quoted(name)} and the constants before it, which share records of the file, need far more "
                "bytes than the file has"
            )

    def _tensor(self, name: str) -> Tensor:
        if name not in self._entries:
            document.malformed(f"has no elements for {document.quoted(name)}")
        folder, entry = self._entries[name]
        meta = entry.get("tensor_meta") if isinstance(entry, dict) else None
        if field(entry, "use_pickle", bool) or meta is None:
            raise Unsupported(
                f"{document.quoted(name)} is stored as a pickle, which Octet does not read",
                hint="export the model with plain tensors (no tensor subclasses, no custom objects)",
            )
        if field(meta, "layout", int) != _STRIDED:
            raise Unsupported(f"{document.quoted(name)} has a layout that is not strided")
        dtype, size, stride = _described(name, meta)
        data = self._archive.read(f"{folder}/{field(entry, 'path_name', str)}")
        if len(data) % dtype.itemsize:
            document.malformed(f"has an incomplete element in {document.quoted(name)}")
        offset = document.dimension(field(meta, "storage_offset", dict))
        elements = strided(data, dtype, -1 if offset is None else offset, size, stride)
        self._charge(name, elements.nbytes)
        return Tensor(elements)


def _described(name: str, meta: Any) -> tuple[np.dtype[Any], list[int | None], list[int | None]]:
    dtype = document.dtype(field(meta, "dtype", int))
    if dtype not in np.sctypeDict:
        raise Unsupported(f"{document.quoted(name)} is a tensor of {dtype}, which cannot be compiled")
    size, stride = ([document.dimension(each) for each in field(meta, part, list)] for part in ("sizes", "strides"))
    return np.dtype(dtype), size, stride
