"""Which artifact answers for which model version: finds it, has the data plane load it, and follows what changes.

Never imports the compiler. `artifacts.StoredArtifacts` knows the store, and is imported by name.
"""

from service.core.queueing import Scheduling
from service.workers.inference.identity import Identity
from service.workers.inference.inventory import Indexed, ModelState
from service.workers.inference.registry import Registry
from service.workers.inference.routes import Name, Reference
from service.workers.inference.served import Served

__all__ = ["Identity", "Indexed", "ModelState", "Name", "Reference", "Registry", "Scheduling", "Served"]
