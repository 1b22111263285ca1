"""A data plane for each tenant, behind the public one, which computes nothing then: docs/adr/0057.

`places` says where they are reached; `files`, what of the store they read; `member`, what one of them is believed;
`planes` is all of them together, in the place of the one.
"""

from service.workers.tenant_planes.files import TenantFiles
from service.workers.tenant_planes.places import Places, folder_of, folder_of_front
from service.workers.tenant_planes.planes import Processes, TenantPlanes

__all__ = ["Places", "Processes", "TenantFiles", "TenantPlanes", "folder_of", "folder_of_front"]
