"""External data: if an ONNX model has its weights in other files, all files are uploaded as one zip archive.

This module does not load TVM, because the command line uses it. A tensor refers to a part of a file by `location`,
`offset` and `length`, as defined in onnx/docs/ExternalData.md. (`checksum` is not needed, because the archive has
checksums.)
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from service.compiler.importers.archive import Archive
from service.compiler.importers.onnx.file.message import Values, read_message
from service.compiler.importers.onnx.file.schema import EXTERNAL
from service.compiler.importers.onnx.file.wire import Budget
from service.core.errors import InvalidInput, MalformedModel

SUFFIX = ".onnx"
_ZIP_MAGIC = b"PK\x03\x04"
_MOST_DEFLATED_BYTES = 1 << 29  # limit of compressed files; stored ones may have any size
_LONGEST_NUMBER = 20
_SHOWN = 200
_DEEPEST = 16  # nesting of subgraphs


class Files:
    """The other files in a model's archive. Files outside of the archive are never opened."""

    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self._read: dict[str, memoryview] = {}

    def __contains__(self, location: str) -> bool:
        return self._archive is not None and location in self._archive

    def part(self, label: str, external: Mapping[str, str], size_bytes: int) -> memoryview:
        """Returns the bytes of a tensor.

        Args:
            label: the tensor as error messages name it.
            external: the location of the bytes, as the model defines it. `location` is the name of a file in the
                archive.
            size_bytes: the number of bytes that the tensor's type and shape need.

        Raises:
            MalformedModel: the file does not contain all of these bytes.
        """
        location = external["location"]
        offset = _number(label, external, "offset", 0)
        # 0 means that the length is not given, as in ONNX Runtime
        length = _number(label, external, "length", size_bytes) or size_bytes
        if location not in self._read:
            assert self._archive is not None
            self._read[location] = memoryview(self._archive.read(location))
        whole = self._read[location]
        if length != size_bytes or offset + length > len(whole):
            raise MalformedModel(
                f"the constant {label} needs {size_bytes} bytes, but the model refers to {length} bytes from byte "
                f"{offset} on of {location[:_SHOWN]!a}, which has {len(whole)}",
                tensor=label,
            )
        return whole[offset : offset + length]


def archive_of(data: bytes) -> Archive:
    """Opens the archive of an upload.

    Raises:
        MalformedModel: the archive is damaged.
    """
    return Archive(data, most_deflated_bytes=_MOST_DEFLATED_BYTES, largest_deflated_bytes=_MOST_DEFLATED_BYTES)


def unpack(data: bytes) -> tuple[bytes, Files]:
    """Returns the model in an upload and the other files. The upload is the model file itself or an archive.

    Raises:
        MalformedModel: the archive does not contain exactly one model, or is damaged.
    """
    if not data.startswith(_ZIP_MAGIC):
        return data, Files()
    archive = archive_of(data)
    models = [name for name in archive if name.endswith(SUFFIX)]
    if len(models) != 1:
        raise MalformedModel(
            f"the archive contains {len(models)} files *{SUFFIX}, not one",
            hint=f"zip one NAME{SUFFIX} and its data files, or run octet push NAME{SUFFIX}, which does so",
        )
    return archive.read(models[0]), Files(archive)


def size_bytes(data: bytes) -> int:
    """Returns the unpacked size of the model in an upload, including its other files. Raises the errors of `unpack`."""
    if not data.startswith(_ZIP_MAGIC):
        return len(data)
    archive = archive_of(data)
    return sum(archive.size_of(name) for name in archive)


def external_of(values: Values) -> dict[str, str] | None:
    """Returns the location of a `Tensor` message's external elements, or None if the elements are in the message."""
    # Some programs do not set `data_location`.
    is_implied = not values.keys() & {"data_location", "raw_data"} and "external_data" in values
    if values.get("data_location") != EXTERNAL and not is_implied:
        return None
    found = {_text(entry.get("key")): _text(entry.get("value")) for entry in values.get("external_data", ())}
    if (location := found.get("location", "")).startswith("./"):
        found["location"] = str(PurePosixPath(location))
    return found


def is_model(path: Path) -> bool:
    return path.suffix == SUFFIX


def pack_files(model: Path, archive: Path, addition: bytes = b"") -> bool:
    """If the tensors of a model are in other files, writes the model, with `addition` at its end, and these files to
    `archive`. The archive depends only on their bytes.

    Returns:
        True if there are such files. Otherwise, nothing is written.

    Raises:
        InvalidInput: a file is missing, or is not in the model's folder.
        MalformedModel: the model cannot be read.
    """
    data = model.read_bytes()
    named = dict(_named(read_message(memoryview(data))))
    if not named:
        return False
    for location, tensor in named.items():
        _require_beside(model, location, tensor)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        name = "model.onnx" if "model.onnx" not in named else model.name
        packed.writestr(zipfile.ZipInfo(name), data + addition)  # a default ZipInfo has a fixed time and no owner
        for location in sorted(named):
            info, path = zipfile.ZipInfo(location), model.parent / location
            info.file_size = path.stat().st_size
            with packed.open(info, "w") as record, path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    record.write(chunk)
    return True


def _named(message: Values) -> Iterator[tuple[str, str]]:
    """Iterates over the files to which constants refer. Yields each file with one of its constants."""
    budget = Budget()
    tensors = list(_tensors(message.get("graph", {}), 0, budget))
    for function in message.get("functions", ()):
        tensors += _tensors(function, 0, budget)
    for tensor in tensors:
        external = external_of(tensor)
        if external is not None:
            yield external.get("location", ""), _text(tensor.get("name"))


def _tensors(graph: Values, depth: int, budget: Budget) -> Iterator[Values]:
    """Iterates over the constants of a graph or a function and of its subgraphs."""
    yield from graph.get("initializer", ())
    sparse = list(graph.get("sparse_initializer", ()))
    for node in graph.get("node", ()):
        for attribute in node.get("attribute", ()):
            if "t" in attribute:
                yield attribute["t"]
            if "sparse_tensor" in attribute:
                sparse.append(attribute["sparse_tensor"])
            if "g" in attribute and depth < _DEEPEST:
                yield from _tensors(read_message(attribute["g"], "Graph", budget=budget), depth + 1, budget)
    for each in sparse:
        yield from (each[part] for part in ("values", "indices") if part in each)


def _require_beside(model: Path, location: str, tensor: str) -> None:
    parts = PurePosixPath(location).parts
    plain = bool(parts) and location == "/".join(parts) and not {"..", "/", "."} & set(parts) and "\\" not in location
    path = model.parent / location
    if not plain or not path.resolve().is_relative_to(model.parent.resolve()):
        raise InvalidInput(
            f"{model.name} stores {tensor[:_SHOWN]} in {location[:_SHOWN]!a}, which is not in its folder",
            hint="a link that leads out of the folder is not followed: copy the file there",
        )
    if not path.is_file():
        raise InvalidInput(
            f"{model.name} stores {tensor[:_SHOWN]} in {location[:_SHOWN]!a}, which does not exist",
            hint="put the file there, or save the model with its weights inside",
        )


def _number(label: str, external: Mapping[str, str], key: str, default: int) -> int:
    text = external.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise MalformedModel(f"the constant {label} has the invalid {key} {text[:_SHOWN]!a}", tensor=label)
    return int(text)


def _text(raw: memoryview | None) -> str:
    return bytes(raw or b"").decode("utf-8", errors="backslashreplace")
