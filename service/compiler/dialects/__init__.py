"""Dialects: what users add to the compiler, in files and packages of their own.

- `dialect`: the object with which a file defines operators, patterns, passes and importers.
- `operators`: an operator that a dialect defines, as the file's code calls it.
- `rules`: how importers convert operators of a framework to it.
- `building`: builds graphs of `qnn.*` operators.
- `loading`: runs the configured files.
- `proof`: compares compiled code with the oracle, for every input of 8 bits.
"""
