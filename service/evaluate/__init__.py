"""Evaluates quantized models: runs a model and its framework's runtime on a data set, and scores and compares the
outputs.

`running` runs the children (`child`), `evaluation` computes the scores, `metrics` are those of classifiers and of
user-defined functions, and `page` writes the inputs that a model got wrong as HTML.
"""
