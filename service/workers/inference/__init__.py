"""Decides which artifact serves which model version: finds it, has the data plane load it, and follows changes.

Never imports the compiler. `artifacts.StoredArtifacts` reads the store; import it from its own module.
"""

from service.core.cluster.queueing import Scheduling
from service.workers.inference.identity import Identity
from service.workers.inference.inventory import Indexed, ModelState
from service.workers.inference.registry import Registry
from service.workers.inference.routes import Name, Reference
from service.workers.inference.served import Served

__all__ = ["Identity", "Indexed", "ModelState", "Name", "Reference", "Registry", "Scheduling", "Served"]
