"""Writes service/api/grpc's messages from inference.proto: `make messages`; with --check, only compares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

DIRECTORY = Path(__file__).resolve().parent.parent / "service" / "api" / "grpc"
_PROTOCOL = "inference.proto"
_FILES = ("inference_pb2.py", "inference_pb2.pyi")


def main() -> int:
    check = "--check" in sys.argv
    stale = {name: text for name, text in generated().items() if _text_of(DIRECTORY / name) != text}
    for name, text in stale.items():
        if not check:
            (DIRECTORY / name).write_text(text)
        print(f"service/api/grpc/{name} {'is out of date; make messages writes it' if check else 'written'}")
    return 1 if stale and check else 0


def generated() -> dict[str, str]:
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{DIRECTORY}"]
        subprocess.run([*command, f"--python_out={folder}", f"--pyi_out={folder}", _PROTOCOL], check=True)
        return {name: _in_a_pool_of_its_own((Path(folder) / name).read_text()) for name in _FILES}


def _in_a_pool_of_its_own(code: str) -> str:
    """Clients of the protocol bring messages of the same names: in one pool, whichever is imported second fails."""
    return code.replace("_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()")


def _text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
