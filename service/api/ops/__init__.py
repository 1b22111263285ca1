"""What operators see and run: the serving process and its supervisor, TLS, metrics, traces and the request log."""
