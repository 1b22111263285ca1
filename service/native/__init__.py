"""What runs without Python: the data plane (`plane`), the runtime of compiled models (`runtime`), its call from Python
(`python`), and fused arithmetic for the oracle (`fused`). `setup.py` builds them.
"""
