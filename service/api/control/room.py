"""The files of a tenant: how much room they leave, and which it may name by their digests."""

from __future__ import annotations

from contextlib import suppress

from service.api.access.tenants import tenant as asking
from service.api.services import Services
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound, TenantFull
from service.core.quantization import quantization_of


def check_room(
    services: Services, tenant: str, source: Digest | None, size_bytes: int, reserved_bytes: int = 0
) -> None:
    """To be called before a file becomes a tenant's, and before it is received.

    Args:
        source: None where it is not known yet.
        reserved_bytes: of what will be made of it.

    Raises:
        TenantFull: its files would take more than they may.
    """
    quota = services.settings.tenants.get(tenant)
    if quota is None or quota.stored_bytes is None:
        return
    own = files_of(services, tenant)
    new_bytes = reserved_bytes + (0 if source in own else size_bytes)
    left_bytes = quota.stored_bytes - sum(own.values())
    if new_bytes > max(0, left_bytes):
        made = f", and {reserved_bytes} are kept free for what is made of it" if reserved_bytes else ""
        raise TenantFull(
            f"the file has {size_bytes} bytes{made}, and of the {quota.stored_bytes} that the tenant {tenant} may "
            f"store {max(0, left_bytes)} are left",
            hint="octet rm MODEL:VERSION makes room at once",
        )


def check_source(services: Services, source: Digest) -> None:
    """Raises `NotFound`: the file is of no model that the request may see. Then it has to be sent."""
    if asking.get() and source not in files_of(services, asking.get()):
        raise NotFound(f"there is no blob {source}", hint="send the file itself")


def files_of(services: Services, tenant: str) -> dict[Digest, int]:
    """The sizes of a tenant's model files, and of the calibration sets and results of its quantizations, as long as
    these are kept: each once.
    """
    found = services.models.file_sizes(tenant)
    for build in services.builds.quantizations_of(tenant):
        asked = quantization_of(build.options)
        with suppress(NotFound, CorruptBlob, InvalidInput):  # what is lost takes no room
            if build.artifact is not None:
                layers = services.layout.manifest(build.artifact).layers
                found |= {layer.digest: layer.size_bytes for layer in layers}
            elif asked is not None and asked.data is not None and asked.data not in found:
                found[asked.data] = services.layout.blobs.size_bytes(asked.data)
    return found
