"""Generates code from the .proto files and from Python's tables: `make messages`. With --check, only compares.

Generates Python's message classes, the descriptors that the data plane sends for gRPC reflection, and the tables of the
C++ code that Python defines (`scripts.native_tables`), and of the page (`scripts.page_tables`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from scripts import native_tables, page_tables

ROOT = Path(__file__).resolve().parent.parent
_PYTHON = Path("service/api/grpc")
_FILES = ("inference_pb2.py", "inference_pb2.pyi")
_PLANE = Path("service/native/plane")
_DESCRIPTORS = _PLANE / "net" / "descriptors.h"
_REFLECTION = "grpc/reflection/v1/reflection.proto"
_LINE_LENGTH = 112  # of a string literal in the header, so that the line is shorter than 120


def main() -> int:
    check = "--check" in sys.argv
    stale = {name: text for name, text in generated().items() if _text_of(ROOT / name) != text}
    for name, text in stale.items():
        if not check:
            (ROOT / name).write_text(text)
        print(f"{name} {'is out of date; make messages writes it' if check else 'written'}")
    return 1 if stale and check else 0


def generated() -> dict[str, str]:
    """Returns the text of each generated file, by its path."""
    with TemporaryDirectory() as folder:
        _protoc(_PYTHON, "inference.proto", f"--python_out={folder}", f"--pyi_out={folder}")
        found = {str(_PYTHON / name): _in_a_pool_of_its_own((Path(folder) / name).read_text()) for name in _FILES}
    return found | {str(_DESCRIPTORS): _descriptors()} | native_tables.generated() | page_tables.generated()


def _protoc(sources: Path, file: str, *options: str) -> None:
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / sources}", *options, file], check=True)


def _in_a_pool_of_its_own(code: str) -> str:
    """Gives the messages their own pool: other clients of the protocol define the same names, and in a shared pool the
    second import would fail.
    """
    return code.replace("_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()")


def _descriptors() -> str:
    """Returns a C++ header with the serialized FileDescriptorProto of each file."""
    protocols = _PLANE / "protocols"
    files = [
        _described(_PYTHON, "inference.proto"),
        _described(protocols, "grpc/health/v1/health.proto"),
        _described(protocols, _REFLECTION),
    ]
    with TemporaryDirectory() as folder:
        older = Path(folder) / _REFLECTION.replace("/v1/", "/v1alpha/")
        older.parent.mkdir(parents=True)
        text = (ROOT / protocols / _REFLECTION).read_text()
        older.write_text(text.replace("package grpc.reflection.v1;", "package grpc.reflection.v1alpha;"))
        files.append(_described(Path(folder), str(older.relative_to(folder))))
    literals = ",\n".join(_literal(file) for file in files)
    return (
        "// Written by `make messages`: the descriptions of the services for clients, each a serialized "
        "FileDescriptorProto.\n"
        "#pragma once\n\n"
        "#include <string_view>\n\n"
        "namespace octet::plane {\n\n"
        f"inline constexpr std::string_view kDescriptors[] = {{\n{literals},\n}};\n\n"
        "}  // namespace octet::plane\n"
    )


def _described(sources: Path, file: str) -> bytes:
    with TemporaryDirectory() as folder:
        target = Path(folder) / "descriptors"
        _protoc(sources, file, f"--descriptor_set_out={target}")
        files = FileDescriptorSet.FromString(target.read_bytes()).file
        return bytes(files[0].SerializeToString(deterministic=True))


def _literal(data: bytes) -> str:
    def lines() -> Iterator[str]:
        line = ""
        for char in map(_escaped, data):
            if len(line + char) > _LINE_LENGTH:
                yield f'"{line}"'
                line = ""
            line += char
        yield f'"{line}"'

    return "    {" + "\n     ".join(lines()) + f",\n     {len(data)}}}"


def _escaped(byte: int) -> str:
    """Escapes a byte for C++: with three octal digits, as a shorter escape would include a digit that follows it."""
    char = chr(byte)
    return char if char.isascii() and char.isprintable() and char not in '"\\?' else f"\\{byte:03o}"


def _text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
