"""Operation of the server: the serving process and its supervisor, TLS, metrics, traces and the request log."""
