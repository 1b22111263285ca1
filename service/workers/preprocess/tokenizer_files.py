"""Loads `tokenizer.json` files of the package `tokenizers`, which users upload.

A file may be hostile: its size, its depth and its regular expressions are limited before the package reads it, in a
process that is locked in and has a memory limit. Defects of the package (a panic in Rust) are errors of the file.
"""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any

from service.core.digest import Digest
from service.core.errors import InvalidInput
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.core.printable import printable
from service.core.system.logs import Seldom

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_logger = logging.getLogger(__name__)
_logger.addFilter(Seldom())  # a client can cause any number of panics

MAX_DEPTH = 32
MAX_PATTERNS = 64
MAX_PATTERN_CHARACTERS = 4096
_KEPT_BYTES = (
    256 << 20
)  # the sizes of the files whose tokenizers are kept in memory; a tokenizer takes several times that


class TokenizerFiles:
    """The tokenizers that were used last. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: OrderedDict[Digest, tuple[Tokenizer, int]] = OrderedDict()

    def load(self, digest: Digest, descriptor: int) -> Tokenizer:
        """Returns the tokenizer in the open file. It must not be changed, because other threads use it.

        Raises:
            InvalidInput: the file is not a valid tokenizer.
        """
        return self.find(digest) or self.add(digest, read_tokenizer(descriptor))

    def find(self, digest: Digest) -> Tokenizer | None:
        """Returns the tokenizer if it is loaded."""
        with self._lock:
            if digest not in self._loaded:
                return None
            self._loaded.move_to_end(digest)
            return self._loaded[digest][0]

    def add(self, digest: Digest, data: bytes) -> Tokenizer:
        """Loads the tokenizer in `data`, like `load`."""
        if f"sha256:{sha256(data).hexdigest()}" != str(digest):
            raise InvalidInput("the file of the model's tokenizer is damaged", hint="upload it again")
        tokenizer = load_tokenizer(data)
        with self._lock:
            self._loaded[digest] = tokenizer, len(data)
            while len(self._loaded) > 1 and sum(size for _, size in self._loaded.values()) > _KEPT_BYTES:
                self._loaded.popitem(last=False)
        return tokenizer


def load_tokenizer(data: bytes) -> Tokenizer:
    """Returns the tokenizer that a `tokenizer.json` contains, without padding, truncation and random choices.

    Raises:
        InvalidInput: the file exceeds a limit, or the package `tokenizers` does not accept it.
    """
    check_tokenizer(data)
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(data)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if getattr(tokenizer.model, "dropout", None) is not None:
            tokenizer.model.dropout = None  # which splits words at random, for training
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        log_panic(error)
        raise _invalid(f"the package tokenizers does not accept it: {error}") from error
    return tokenizer


def log_panic(error: BaseException) -> None:
    """Logs an error of the package `tokenizers` if it is a panic of Rust code, which is not an `Exception`."""
    if not isinstance(error, Exception):
        _logger.warning("the package tokenizers panicked: %.200s", printable(str(error)))


def check_tokenizer(data: bytes) -> None:
    """Raises `InvalidInput` if a `tokenizer.json` exceeds a limit on size, depth or regular expressions."""
    if len(data) > MAX_TOKENIZER_BYTES:
        raise _invalid(f"it has {len(data)} bytes, but the limit is {MAX_TOKENIZER_BYTES}")
    try:
        members = json.loads(data)
    except (RecursionError, ValueError) as error:
        raise _invalid("it is not JSON") from error
    if not isinstance(members, dict) or not isinstance(members.get("model"), dict):
        raise _invalid("it has no member model")
    patterns = list(_patterns({**members, "model": _without_vocabulary(members["model"])}, 0))
    if len(patterns) > MAX_PATTERNS:
        raise _invalid(f"it has {len(patterns)} regular expressions, but the limit is {MAX_PATTERNS}")
    longest = max(map(len, patterns), default=0)
    if longest > MAX_PATTERN_CHARACTERS:
        raise _invalid(f"a regular expression has {longest} characters, but the limit is {MAX_PATTERN_CHARACTERS}")


def _without_vocabulary(model: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name not in ("vocab", "merges")}


def _patterns(value: object, depth: int) -> Iterator[str]:
    """Yields the regular expressions in a JSON value."""
    if depth > MAX_DEPTH:
        raise _invalid(f"it is nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for name, member in value.items():
            if name == "Regex" and isinstance(member, str):
                yield member
            yield from _patterns(member, depth + 1)
    elif isinstance(value, list):
        for element in value:
            if isinstance(element, dict | list):
                yield from _patterns(element, depth + 1)


def read_tokenizer(descriptor: int) -> bytes:
    """Returns the content of an open file. Raises `InvalidInput` if it is too large for a tokenizer."""
    size = os.fstat(descriptor).st_size
    if size > MAX_TOKENIZER_BYTES:
        raise _invalid(f"it has {size} bytes, but the limit is {MAX_TOKENIZER_BYTES}")
    return os.pread(descriptor, size, 0)


def _invalid(why: str) -> InvalidInput:
    return InvalidInput(f"the model's tokenizer cannot be used: {why}", hint="upload another tokenizer.json")
