"""The control plane under `/api/v1`: models, versions, builds, artifacts, keys; and the page, which is its client."""
