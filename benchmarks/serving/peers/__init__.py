"""One file for each server that Octet is compared with: the same body in, the same bytes out, POST /predict.

They run in environments of their own (`benchmarks.setup_peers`), so they import nothing of `service`, and nothing of
each other: only `runtimes`, the frameworks that compute for them, at their best settings for one core.
"""
