"""Commands that are clients of a server."""
