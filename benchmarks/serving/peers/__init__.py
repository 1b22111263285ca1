"""One file for each server that Octet is compared with: the same request and response bytes, POST /predict.

They run in separate environments (`benchmarks.setup_peers`), so they import nothing from `service` and nothing from
each other except `runtimes`: the frameworks that compute in them, at their best settings for one core.
"""
