"""Creates build inputs that differ only in the fields that a test sets."""

from __future__ import annotations

from service.core.builds.build import BuildInputs
from service.core.digest import digest_of

TARGET = "x86-64-v3"


def inputs(source: str = "model", target: str = TARGET, numerics: str = "litert-reference") -> BuildInputs:
    return BuildInputs(digest_of(source.encode()), target, numerics, {"compiler": "1"}, {"level": 3})
