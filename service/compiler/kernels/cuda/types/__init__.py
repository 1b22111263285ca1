"""Layouts and formulas as C++ types, with the arrays that they read."""
