"""The model version that a request names, over whatever wire it comes.

A version is a number or an alias, such as `stable`. Clients that have no place for it add it to the name:
`mobilenet@stable`.
"""

from __future__ import annotations

import re

from service.core.alias import ALIAS_PATTERN
from service.core.errors import InvalidInput, NotFound
from service.workers.inference import Reference

_MAX_DIGITS = 9
_ALIAS = re.compile(ALIAS_PATTERN)


def parse_address(model: str, version: str = "") -> tuple[str, Reference]:
    """The name of a model, and which version of it; None where neither part says.

    Raises:
        NotFound: the version is neither a number nor an alias.
        InvalidInput: both parts name a version.
    """
    if "@" in model:
        model, _, reference = model.partition("@")
        if version and reference:
            raise InvalidInput(f"the version is named twice: {reference!r} and {version!r}", hint="name it once")
        version = version or reference
    if not version:
        return model, None
    if version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS:
        return model, int(version)
    if not _ALIAS.fullmatch(version):
        raise NotFound("there is no such version", hint="versions are numbers, 1, 2, ..., or aliases, like stable")
    return model, version


def parse_addresses(text: str) -> list[tuple[str, Reference]] | None:
    """Several, separated by commas, as the setting `preload` has them; None for `*`, which is all there are.

    Raises:
        NotFound: as `parse_address`.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    return None if "*" in names else [parse_address(name) for name in names]
