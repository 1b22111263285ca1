"""Tenants: whose models a key is for.

A tenant's models have names of its own, which two tenants may both use. Inside, the tenant's name stands before each:
`acme~digits`. What a tenant says is qualified where it comes in, and what it is told is stripped where it goes out; no
name that a tenant may say holds a `~`, so that none leads to what is another's. `request/tenant.h` does the same in the
data plane. The operator, whose tenant is empty, says and sees whole names.
"""

from __future__ import annotations

import re

from service.core.errors import InvalidInput

SEPARATOR = "~"
PATTERN = r"^[a-z0-9][a-z0-9-]{0,30}$"
_TENANT = re.compile(PATTERN)


def check_tenant(name: str) -> str:
    """The name of a tenant; empty is the operator's. Raises `InvalidInput`."""
    if name and not _TENANT.fullmatch(name):
        raise InvalidInput(
            f"{name!r} is no name of a tenant",
            hint="up to 31 lower-case letters, digits and -, which is not the first",
        )
    return name


def prefix_of(tenant: str) -> str:
    """What the names of a tenant's models begin with; of the operator's keys, those of all."""
    return tenant + SEPARATOR if tenant else ""


def owner_of(model: str) -> str:
    """The tenant of a model, by its name here."""
    return model.partition(SEPARATOR)[0] if SEPARATOR in model else ""


def shown(tenant: str, model: str) -> str:
    """A model's name here, as its tenant says it."""
    return model.removeprefix(prefix_of(tenant))
