"""Verification: its inputs, the comparison of outputs, and the decision whether a build agrees with its reference."""
