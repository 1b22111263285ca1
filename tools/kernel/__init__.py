"""Builds one kernel, compares it with the oracle, and shows its program, its machine code and its speed.

`__main__.py` is the command, `operators.py` contains the operators for which it can build kernels, and `building.py`
lowers a module with the same steps as a build.
"""
