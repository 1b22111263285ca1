"""The page: what the server has and does, for people, in a browser.

Its files are sent as they lie in `assets/`. Everything that it shows it asks the API for, as any other client does.
"""

from __future__ import annotations

from service.api.control.page.reference import reference_routes
from service.api.control.page.routes import routes

__all__ = ["reference_routes", "routes"]
