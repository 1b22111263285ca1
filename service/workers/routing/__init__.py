"""The control side of an API's router: which workers are running, and which of them can serve which model.

The data plane chooses a worker for each request (`service/native/plane/control/cluster.cc`). It does so by the orders
that this package derives from the table of workers and the builds.
"""

from service.workers.routing.matrix import Cell, CellState, Pool
from service.workers.routing.members import Members
from service.workers.routing.routing import Routing, routing_of
from service.workers.routing.servable import Servable

__all__ = ["Cell", "CellState", "Members", "Pool", "Routing", "Servable", "routing_of"]
