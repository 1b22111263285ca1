"""The HTTP API: the control plane under `/api/v1`, the data plane under `/v2`, and `/metrics`.

This package translates between HTTP and the other packages, which contain the logic.
"""
