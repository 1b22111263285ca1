"""Packs the two files of an OpenVINO model, NAME.xml and NAME.bin, into one zip archive that contains nothing else.

This module does not load TVM, because the command line uses it.
"""

from __future__ import annotations

from pathlib import Path

from service.compiler.importers.archive import Archive, pack_records
from service.core.errors import InvalidInput, MalformedModel

GRAPH_SUFFIX, WEIGHTS_SUFFIX = ".xml", ".bin"
_MOST_GRAPH_BYTES = 1 << 27
_MOST_DEFLATED_BYTES = 1 << 29  # limit of compressed files; stored weights may have any size


def unpack(data: bytes) -> tuple[bytes, bytes]:
    """Returns the graph and the weights in an archive. A model without weights may have no file for them.

    Raises:
        MalformedModel: the archive does not contain exactly these files, or is damaged.
    """
    archive = Archive(data, most_deflated_bytes=_MOST_DEFLATED_BYTES, largest_deflated_bytes=_MOST_DEFLATED_BYTES)
    graphs = [name for name in archive if name.endswith(GRAPH_SUFFIX)]
    weights = [name for name in archive if name.endswith(WEIGHTS_SUFFIX)]
    if len(graphs) != 1 or len(weights) > 1 or len(list(archive)) != 1 + len(weights):
        raise MalformedModel(
            f"the archive contains {len(list(archive))} files, not one NAME{GRAPH_SUFFIX} and one NAME{WEIGHTS_SUFFIX}",
            hint="zip exactly these two, or run octet push NAME.xml, which does so",
        )
    size_bytes = archive.size_of(graphs[0])
    if size_bytes > _MOST_GRAPH_BYTES:
        raise MalformedModel(f"the graph has {size_bytes} bytes; the limit is {_MOST_GRAPH_BYTES}")
    return archive.read(graphs[0]), archive.read(weights[0]) if weights else b""


def pack(graph: bytes, weights: bytes) -> bytes:
    """Returns an archive of the two files."""
    return pack_records({f"model{GRAPH_SUFFIX}": graph, f"model{WEIGHTS_SUFFIX}": weights})


def is_graph(path: Path) -> bool:
    """Returns true if `path` has the name of an IR's graph."""
    return path.suffix == GRAPH_SUFFIX


def pack_files(graph: Path) -> bytes:
    """Packs the graph at `graph` and its weights, which are in the same folder.

    Raises:
        InvalidInput: the folder does not contain the weights.
    """
    weights = graph.with_suffix(WEIGHTS_SUFFIX)
    if not weights.is_file():
        raise InvalidInput(
            f"{graph.name} needs its weights beside it, the file {weights.name}, which does not exist",
            hint="copy both files of the model into one folder",
        )
    return pack(graph.read_bytes(), weights.read_bytes())
