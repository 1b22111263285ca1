"""Kernels written against a vector instruction set (`isa`): one file for each family of operators, no architecture."""
