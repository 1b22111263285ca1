"""The native code, which `setup.py` builds: the data plane (`plane`), the runtime of compiled models (`runtime`), its
binding for Python (`python`), and fused arithmetic for the test oracle (`fused`).
"""
