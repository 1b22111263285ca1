"""Parses the model and version that a request names, in any protocol.

A version is a number or an alias, such as `stable`. Clients that cannot send a version append it to the name:
`mobilenet@stable`.
"""

from __future__ import annotations

import re

from service.core.errors import InvalidInput, NotFound
from service.core.models.alias import ALIAS_PATTERN
from service.workers.inference import Reference

_MAX_DIGITS = 9
_ALIAS = re.compile(ALIAS_PATTERN)


def parse_address(model: str, version: str = "") -> tuple[str, Reference]:
    """Returns the name of a model and its version, which is None if neither part contains a version.

    Raises:
        NotFound: the version is neither a number nor an alias.
        InvalidInput: both parts contain a version.
    """
    if "@" in model:
        model, _, reference = model.partition("@")
        if version and reference:
            raise InvalidInput(
                f"the request has two versions: {reference!r} and {version!r}", hint="send only one of them"
            )
        version = version or reference
    if not version:
        return model, None
    if version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS:
        return model, int(version)
    if not _ALIAS.fullmatch(version):
        raise NotFound("there is no such version", hint="versions are numbers, 1, 2, ..., or aliases, like stable")
    return model, version


def parse_addresses(text: str) -> list[tuple[str, Reference]] | None:
    """Parses several addresses separated by commas, as in the setting `preload`. Returns None for `*`, which means all
    models.

    Raises:
        NotFound: see `parse_address`.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    return None if "*" in names else [parse_address(name) for name in names]
