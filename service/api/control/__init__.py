"""The control plane under `/api/v1`: models, versions, builds, artifacts and keys; and the page that uses it."""
