"""Runs one data plane for each tenant. The public data plane then only forwards requests to them: docs/adr/0057.

`addresses` defines the addresses of these data planes. `files` decides which files of the store they can read. `member`
decides which reports of a data plane are accepted. `planes` combines the tenants' data planes into the interface of a
single one.
"""

from service.workers.tenant_planes.addresses import Addresses, folder_of, folder_of_front
from service.workers.tenant_planes.files import TenantFiles
from service.workers.tenant_planes.planes import Processes, TenantPlanes

__all__ = ["Addresses", "Processes", "TenantFiles", "TenantPlanes", "folder_of", "folder_of_front"]
