"""HTTP: the control plane under `/api/v1`, the data plane under `/v2`, `/metrics`. It only translates."""
