"""Serves the page's files. The files are not secret. If keys are required, the page's requests carry a key.

The page is written in JavaScript modules, which the browser loads as they are; nothing is built.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.routing import Route

from service.api.control.page.asset import Asset, policy

INDEX = "index.html"
_MAIN = "main.js"
_PRELOADS = "<!-- preloads -->"
_IMPORT = re.compile(r"""^(?:import|export) [^;]*?["'](\.[^"']+)["'];?$""", re.MULTILINE)
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_POLICY = policy(image="'self' blob:")  # blob: for the picture that the user chooses


def routes() -> list[Route]:
    """Returns the routes for `/` and the other files."""
    contents = {path: file.read_bytes() for path, file in _files(files(__package__) / "assets")}
    links = "\n  ".join(f'<link rel="modulepreload" href="page/{path}">' for path in modules_of(contents, _MAIN))
    contents[INDEX] = contents[INDEX].replace(_PRELOADS.encode(), links.encode())
    paths = {path: "/" if path == INDEX else f"/page/{path}" for path in sorted(contents)}
    return [Route(paths[path], _asset(path, contents[path]).respond) for path in paths]


def _asset(path: str, content: bytes) -> Asset:
    return Asset(content, _MEDIA_TYPES[PurePosixPath(path).suffix], _POLICY)


def modules_of(contents: Mapping[str, bytes], main: str) -> list[str]:
    """Returns the modules that a module imports, directly or through others, but not those that it loads later. With
    their names in the page, the browser need not read one module to learn of the next.

    Args:
        contents: the files by path.
        main: the path of the module.
    """
    found, waiting = dict.fromkeys([main]), [main]
    while waiting:
        path = waiting.pop()
        for relative in _IMPORT.findall(contents[path].decode()):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))
            if imported not in found:
                found[imported] = None
                waiting.append(imported)
    return [path for path in found if path != main]


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yields the files of a folder and of its folders, each with its path."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each
