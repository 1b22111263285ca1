"""The data plane, from the side of Python: what it is told, and how it is started. docs/adr/0042 says why there is one.

The process itself is `octet-plane`, of C++ (`service/native/plane`).
"""
