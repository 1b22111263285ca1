"""Answers predictions: finds the artifact of a model version, keeps it loaded, queues and runs requests on it.

Never imports the compiler. `artifacts.StoredArtifacts` loads the runtime and is imported by name, so that
whoever only queues and serves (and every test of that) does not need it.
"""

from service.core.queueing import Scheduling
from service.workers.inference.executor import Executor, queue_full
from service.workers.inference.inventory import Indexed, ModelState
from service.workers.inference.observer import Identity, ModelObserver, Observer, Unobserved
from service.workers.inference.permit import Permit, Stages
from service.workers.inference.registry import Registry
from service.workers.inference.routes import Reference
from service.workers.inference.runner import Array, Runner
from service.workers.inference.served import Served
from service.workers.inference.terms import Abandoned, Step, Terms
from service.workers.inference.variants import Variants

__all__ = [
    "Abandoned",
    "Array",
    "Executor",
    "Identity",
    "Indexed",
    "ModelObserver",
    "ModelState",
    "Observer",
    "Permit",
    "Reference",
    "Registry",
    "Runner",
    "Scheduling",
    "Served",
    "Stages",
    "Step",
    "Terms",
    "Unobserved",
    "Variants",
    "queue_full",
]
