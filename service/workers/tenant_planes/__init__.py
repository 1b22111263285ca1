"""Runs one data plane for each tenant. The public data plane then only forwards requests to them: docs/adr/0057.

`places` defines the addresses of these data planes. `files` decides which files of the store they can read. `member`
decides which reports of a data plane are accepted. `planes` combines them into the interface of a single data plane.
"""

from service.workers.tenant_planes.files import TenantFiles
from service.workers.tenant_planes.places import Places, folder_of, folder_of_front
from service.workers.tenant_planes.planes import Processes, TenantPlanes

__all__ = ["Places", "Processes", "TenantFiles", "TenantPlanes", "folder_of", "folder_of_front"]
