"""Importers: each converts model files of one format into a typed module of the QNN dialect. One folder per format.

`detect` determines the format of a file; `auto` imports it. Only `detect` may be imported without loading TVM.
"""
