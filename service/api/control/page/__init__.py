"""The page: shows in a browser which models the server has and what it is doing.

The page's files are in `assets/`. Like any other client, the page gets everything that it shows from the API.
"""

from __future__ import annotations

from service.api.control.page.reference import reference_routes
from service.api.control.page.routes import routes

__all__ = ["reference_routes", "routes"]
