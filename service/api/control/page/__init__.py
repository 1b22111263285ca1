"""The page: shows in a browser which models the server has and what it is doing.

The page's files are in `assets/`. Like any other client, the page gets everything that it shows from the API.

    app         the frame of all views: addresses, requests, the stream of changes, keys, colours
    parts       parts of several views: dialogs, bars, areas for files
    charts      charts, drawn by uPlot
    models, try, rollout, accuracy, layers      the list of models, and the tabs of one model
    builds, push, quantize, pools, keys, settings     the other views, and the dialog that uploads a model
    vendor      the libraries, which `scripts/vendor_page.py` copies from their packages

A file has one component, or functions of one topic. Components are functions that return htm templates, which Preact
draws. Views other than the first are loaded when they are opened.
"""

from __future__ import annotations

from service.api.control.page.reference import reference_routes
from service.api.control.page.routes import routes

__all__ = ["reference_routes", "routes"]
