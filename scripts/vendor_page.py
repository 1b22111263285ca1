"""Copies the page's JavaScript libraries from their npm packages to `service/api/control/page/assets/vendor`.

Run it after a change of a version below: `python -m scripts.vendor_page`. It needs the program npm, which checks each
package against the registry's digest. The files stay as they are published, except that names of packages in imports
become names of files, and that source maps, which are not copied, are not named.
"""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "service/api/control/page/assets/vendor"
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)
_LICENSE = "LICENSE"


@dataclass(frozen=True)
class Library:
    """A package, with its files by name, and the names of their copies.

    Attributes:
        exports: the global variable that a script of the package sets; the copy exports it. Empty for modules.
    """

    package: str
    version: str
    licence: str
    files: dict[str, str]
    exports: str = ""


LIBRARIES = (
    Library("preact", "11.2.0", "MIT", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"}),
    Library("htm", "3.1.1", "Apache-2.0", {"dist/htm.module.js": "htm.js"}),
    Library(
        "uplot", "1.6.32", "MIT", {"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"}, "uPlot"
    ),
    Library("@dagrejs/dagre", "3.1.3", "MIT", {"dist/dagre.esm.js": "dagre.js"}),
)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    versions, licences = [], []
    for library in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder, tarfile.open(_packed(library, folder)) as archive:
            for name, copy in library.files.items():
                (FOLDER / copy).write_text(_adapted(_text(archive, name), library, copy))
            licences.append(f"{library.package} {library.version}\n\n{_text(archive, _LICENSE).strip()}\n")
        versions.append({"package": library.package, "version": library.version, "licence": library.licence})
    (FOLDER / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
    (FOLDER / "licences.txt").write_text(f"\n{'-' * 80}\n\n".join(licences))


def _packed(library: Library, folder: str) -> Path:
    """Downloads the package's archive."""
    command = ["npm", "pack", f"{library.package}@{library.version}", "--silent"]
    name = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout.strip()
    return Path(folder) / name


def _text(archive: tarfile.TarFile, name: str) -> str:
    member = archive.extractfile(f"package/{name}")
    if member is None:
        raise FileNotFoundError(name)
    return member.read().decode()


def _adapted(text: str, library: Library, copy: str) -> str:
    text = _SOURCE_MAP.sub("", text).replace('from"preact"', 'from"./preact.js"').rstrip() + "\n"
    if library.exports and copy.endswith(".js"):
        text += f"export default {library.exports};\n"
    return text


if __name__ == "__main__":
    main()
