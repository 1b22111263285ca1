"""Packs the two files of an MXNet model, NAME-symbol.json and NAME-0000.params, into one zip archive that contains
nothing else.

This module does not load TVM, because the command line uses it.
"""

from __future__ import annotations

import re
from pathlib import Path

from service.compiler.importers.archive import Archive, pack_records
from service.core.errors import InvalidInput, MalformedModel

SYMBOL_SUFFIX, PARAMS_SUFFIX = "-symbol.json", ".params"
SHAPE_ATTRIBUTE = "__shape__"  # attribute of a variable, as `mx.sym.Variable("data", shape=…)` writes it
_EPOCH = re.compile(r"-\d{4}\.params")
_MOST_SYMBOL_BYTES = 1 << 24
_MOST_DEFLATED_BYTES = 1 << 29  # limit of compressed parameters; stored ones may have any size


def unpack(data: bytes) -> tuple[bytes, bytes]:
    """Returns the symbol and the parameters in an archive.

    Raises:
        MalformedModel: the archive does not contain exactly these two files, or is damaged.
    """
    archive = Archive(data, most_deflated_bytes=_MOST_DEFLATED_BYTES, largest_deflated_bytes=_MOST_DEFLATED_BYTES)
    symbols = [name for name in archive if name.endswith(SYMBOL_SUFFIX)]
    params = [name for name in archive if name.endswith(PARAMS_SUFFIX)]
    if len(symbols) != 1 or len(params) != 1 or len(list(archive)) != 2:
        raise MalformedModel(
            f"the archive contains {len(list(archive))} files, not one NAME{SYMBOL_SUFFIX} and one NAME-0000.params",
            hint="zip exactly these two, or run octet push NAME-symbol.json, which does so",
        )
    size_bytes = archive.size_of(symbols[0])
    if size_bytes > _MOST_SYMBOL_BYTES:
        raise MalformedModel(f"the symbol has {size_bytes} bytes; the limit is {_MOST_SYMBOL_BYTES}")
    return archive.read(symbols[0]), archive.read(params[0])


def pack(symbol: bytes, params: bytes) -> bytes:
    """Returns an archive of the two files."""
    return pack_records({f"model{SYMBOL_SUFFIX}": symbol, f"model-0000{PARAMS_SUFFIX}": params})


def is_symbol(path: Path) -> bool:
    """Returns true if `path` has the name of an MXNet symbol."""
    return path.name.endswith(SYMBOL_SUFFIX)


def pack_files(symbol: Path) -> bytes:
    """Packs the symbol at `symbol` and its parameters, which are in the same folder.

    Raises:
        InvalidInput: the folder contains no file of parameters, or several.
    """
    stem = symbol.name.removesuffix(SYMBOL_SUFFIX)
    beside = sorted(path for path in symbol.parent.iterdir() if _belongs(path, stem))
    if len(beside) != 1:
        found = ", ".join(path.name for path in beside) or "none"
        raise InvalidInput(
            f"{symbol.name} needs its parameters beside it, one file {stem}-0000.params; found: {found}",
            hint="or zip the symbol and the right parameters, and push the archive",
        )
    return pack(symbol.read_bytes(), beside[0].read_bytes())


def _belongs(path: Path, stem: str) -> bool:
    return path.name.startswith(stem) and _EPOCH.fullmatch(path.name.removeprefix(stem)) is not None
