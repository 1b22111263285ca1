"""Commands that work on files and on this machine, without a server."""
