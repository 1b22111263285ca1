"""The control plane's part of an API's router: finds which workers are running, and which of them can serve a model.

The data plane chooses a worker for each request (`service/native/plane/control/cluster.cc`). This package sends the
data plane the orders for this choice, which are derived from the table of workers and from the builds.
"""

from service.workers.routing.matrix import Cell, CellState, Pool
from service.workers.routing.members import Members
from service.workers.routing.routing import Routing, routing_of
from service.workers.routing.servable import Servable

__all__ = ["Cell", "CellState", "Members", "Pool", "Routing", "Servable", "routing_of"]
