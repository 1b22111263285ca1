"""The files of artifacts that a tenant's data plane may read: hard links in its folder while it loads."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from service.core.errors import NotReady

_FILES = ("library", "constants")


class TenantFiles:
    """For one event loop.

    A data plane maps what it loads, so that the names can go when it has. It gives up its rights before it knows which
    models there will be, and the store's folder has the files of all tenants: rights to it would be rights to those.
    """

    def __init__(self, folder_of: Callable[[str], Path]) -> None:
        """
        Args:
            folder_of: of a tenant's data plane; on the store's file system.
        """
        self._folder_of = folder_of
        self._lent: Counter[Path] = Counter()

    def clear(self, tenant: str) -> None:
        """Takes away what a control plane before has left."""
        with suppress(FileNotFoundError):
            for each in self._folder_of(tenant).iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink(missing_ok=True)

    @contextmanager
    def lent(self, tenant: str, order: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The order to load a model, by names of its files that the tenant's data plane may read until the block ends.

        The same order has the same names each time: by its digest a later control plane finds what is loaded.

        Raises:
            NotReady: the folder cannot be written, or is not on the store's file system.
        """
        folder = self._folder_of(tenant)
        names = {part[file]: folder / Path(part[file]).name for part in order["parts"] for file in _FILES if part[file]}
        try:
            with self._linked(folder, names):
                parts = [
                    {**part, **{file: str(names[part[file]]) for file in _FILES if part[file]}}
                    for part in order["parts"]
                ]
                yield {**order, "parts": parts}
        except OSError as error:
            raise NotReady(f"the artifact's files cannot be linked into {folder}: {error.strerror or error}") from error

    @contextmanager
    def _linked(self, folder: Path, names: Mapping[str, Path]) -> Iterator[None]:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        done = []
        try:
            for stored, name in names.items():
                if not self._lent[name]:
                    name.unlink(missing_ok=True)
                    os.link(stored, name)
                self._lent[name] += 1
                done.append(name)
            yield
        finally:
            for name in done:
                self._lent[name] -= 1
                if not self._lent[name]:
                    del self._lent[name]
                    name.unlink(missing_ok=True)
