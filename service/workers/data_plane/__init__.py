"""The data plane as seen from Python: the orders that it receives, and the code that starts it. docs/adr/0042 explains
why the data plane exists.

The process itself is `octet-plane`, written in C++ (`service/native/plane`).
"""
