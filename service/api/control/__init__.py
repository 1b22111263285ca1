"""The control plane under `/api/v1`: models, versions, builds, artifacts and keys; and the page that uses it.

`routes` contains the routes, `wire` their formats, and the other modules are what the routes share.
"""
