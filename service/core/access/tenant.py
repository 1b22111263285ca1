"""Tenants: separate namespaces of models. An API key belongs to one tenant, or to the operator.

Two tenants may use the same model name. Internally, each name is prefixed with the tenant's: `acme~digits`. The prefix
is added to the names in a tenant's requests, and removed from the names in its responses. A tenant's request may not
contain a name with `~`, so it cannot reach another tenant's models. `request/tenant.h` treats names in the same way in
the data plane. The operator's tenant is the empty string. The operator uses and sees full names.
"""

from __future__ import annotations

import re

from service.core.errors import InvalidInput

SEPARATOR = "~"
PATTERN = r"^[a-z0-9][a-z0-9-]{0,30}$"
_TENANT = re.compile(PATTERN)


def check_tenant(name: str) -> str:
    """Returns `name` if it is a valid tenant name or the operator's empty one. Otherwise raises `InvalidInput`."""
    if name and not _TENANT.fullmatch(name):
        raise InvalidInput(
            f"{name!r} is not a valid tenant name",
            hint="use up to 31 lower-case letters, digits and -, and do not begin with -",
        )
    return name


def prefix_of(tenant: str) -> str:
    """Returns the prefix of the full names of a tenant's models. It is empty for the operator, because the
    operator can access all models.
    """
    return tenant + SEPARATOR if tenant else ""


def owner_of(model: str) -> str:
    """Returns the tenant of a model from its full name; empty for a model of the operator."""
    return model.partition(SEPARATOR)[0] if SEPARATOR in model else ""


def local_name(tenant: str, model: str) -> str:
    """Returns a model's name as its tenant sees it: the full name without the tenant's prefix."""
    return model.removeprefix(prefix_of(tenant))
