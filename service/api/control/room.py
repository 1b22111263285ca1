"""A tenant's storage quota, and access to stored files by digest."""

from __future__ import annotations

from contextlib import suppress

from service.api.access.tenants import tenant as current_tenant
from service.api.services import Services
from service.core.builds.quantization import quantization_of
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound, TenantFull


def check_room(
    services: Services, tenant: str, source: Digest | None, size_bytes: int, reserved_bytes: int = 0
) -> None:
    """Checks the quota before a file is received and added to a tenant's files.

    Args:
        source: the file's digest, or None if the digest is not known yet.
        reserved_bytes: the size of files that will be created from this file.

    Raises:
        TenantFull: the tenant's files would exceed its quota.
    """
    quota = services.settings.tenants.get(tenant)
    if quota is None or quota.stored_bytes is None:
        return
    own = files_of(services, tenant)
    new_bytes = reserved_bytes + (0 if source in own else size_bytes)
    left_bytes = quota.stored_bytes - sum(own.values())
    if new_bytes > max(0, left_bytes):
        made = f" ({reserved_bytes} more bytes are reserved for its result)" if reserved_bytes else ""
        raise TenantFull(
            f"the file is {size_bytes} bytes{made}, but only {max(0, left_bytes)} of the tenant {tenant}'s "
            f"{quota.stored_bytes} bytes are free",
            hint="octet rm MODEL:VERSION frees space at once",
        )


def check_source(services: Services, source: Digest) -> None:
    """Raises `NotFound` if no model that the request may see has this file. The client must then send the file."""
    if current_tenant.get() and source not in files_of(services, current_tenant.get()):
        raise NotFound(f"there is no blob {source}", hint="send the file itself")


def files_of(services: Services, tenant: str) -> dict[Digest, int]:
    """Returns the sizes, by digest, of the files that a tenant uses: its model files and tokenizers, and the
    calibration sets and results of its quantizations. Files that are no longer stored are left out.
    """
    found = services.models.file_sizes(tenant) | services.models.tokenizer_sizes(tenant)
    for build in services.builds.quantizations_of(tenant):
        options = quantization_of(build.options)
        with suppress(NotFound, CorruptBlob, InvalidInput):  # a lost file takes no space
            if build.artifact is not None:
                layers = services.layout.manifest(build.artifact).layers
                found |= {layer.digest: layer.size_bytes for layer in layers}
            elif options is not None and options.data is not None and options.data not in found:
                found[options.data] = services.layout.blobs.size_bytes(options.data)
    return found
