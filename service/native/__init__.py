"""What runs without Python: the queue and the threads of a model, and the calls of compiled code.

Between two predictions a model has swept the caches, and Python that runs cold takes longer than a small model
(docs/adr/0027). The sources lie in `src`; `setup.py` builds them.
"""

from service.native.front import FIELDS as FRONT_FIELDS
from service.native.front import Entry, Front, Handover, Problem, Slot
from service.native.front import Limits as FrontLimits
from service.native.grpc_front import CallBegan, Canceled, GrpcFront, GrpcLimits, HalfClosed, MessageCame, lines_of
from service.native.library import Runner, choosing_runner, compiled_runner
from service.native.model_queue import Array, Job, Mailbox, ModelQueue, Outcome, as_runner, serialized
from service.native.peer_budgets import PeerBudgets, PeerLimits, Seat

__all__ = [
    "FRONT_FIELDS",
    "Array",
    "CallBegan",
    "Canceled",
    "Entry",
    "Front",
    "FrontLimits",
    "GrpcFront",
    "GrpcLimits",
    "HalfClosed",
    "Handover",
    "Job",
    "Mailbox",
    "MessageCame",
    "ModelQueue",
    "Outcome",
    "PeerBudgets",
    "PeerLimits",
    "Problem",
    "Runner",
    "Seat",
    "Slot",
    "as_runner",
    "choosing_runner",
    "compiled_runner",
    "lines_of",
    "serialized",
]
