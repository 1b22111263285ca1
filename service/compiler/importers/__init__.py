"""Importers: a model file of some format in, a typed module of the QNN dialect out. One folder per format.

`detect` says which format a file has; `auto` imports it. Only `detect` may be imported without loading TVM.
"""
