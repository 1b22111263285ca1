"""Python environments beside Octet's own, for runtimes that need other versions of the same packages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

# The program loaders of the C libraries. The kernel starts them in order to start a program.
_LOADERS = ("/lib/ld-linux-*", "/lib64/ld-linux-*", "/lib/ld-musl-*")


@dataclass(frozen=True)
class Environment:
    """A virtual environment, or an installation of Python. Its code runs in sandboxed children only.

    Attributes:
        python: the path of its interpreter, such as `/opt/mxnet/bin/python`.
    """

    python: Path

    def version(self, package: str) -> str | None:
        """Returns the version of an installed package, or None. Starts no process."""
        folders = [str(path) for path in sorted(self._prefix.glob("lib*/python3*/*-packages"))]
        return next((found.version for found in distributions(name=package, path=folders)), None)

    def readable(self) -> tuple[Path, ...]:
        """Returns the files and folders that the interpreter and its packages are in."""
        prefixes = dict.fromkeys((self._prefix, self.python.resolve().parent.parent))
        paths = [prefix / name for prefix in prefixes for name in ("lib", "lib64", "pyvenv.cfg")]
        return tuple(path for path in paths if path.exists())

    def executable(self) -> tuple[Path, ...]:
        """Returns the programs that the kernel executes to start the interpreter."""
        return self.python, *(path for pattern in _LOADERS for path in sorted(Path("/").glob(pattern[1:])))

    @property
    def _prefix(self) -> Path:
        return self.python.absolute().parent.parent
