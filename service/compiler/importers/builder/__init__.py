"""The builder that all importers share. Importers parse attributes and name tensors; the checks of shapes, the texts of
errors and the calls that are emitted are written once here, for every format.
"""
