"""The control plane under `/api/v1`: models, versions, builds, artifacts and keys; and the page that uses it.

`routes` contains the routes and `wire` their formats. The other modules contain code that several routes use.
"""
