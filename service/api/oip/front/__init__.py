"""The native front (`service.native.Front`) in this application: routes, calls into Python, and counters."""

from service.api.oip.front.fronted import Fronted
from service.api.oip.front.routes import FrontRoutes
from service.api.oip.front.server import FrontServer

__all__ = ["FrontRoutes", "FrontServer", "Fronted"]
