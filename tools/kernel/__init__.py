"""Builds one kernel, compares it with the oracle, and shows its program, its machine code and its speed.

`operators.py` contains the operators that it can build, `building.py` lowers a module as a build does, and
`__main__.py` is the program.
"""
