"""Commands that run until they are stopped: the servers and workers."""
