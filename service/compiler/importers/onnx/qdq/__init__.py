"""Puts quantized operators in place of float ones between DequantizeLinear and QuantizeLinear.

`operators` finds them, and `fusions` defines the result for each operator type.
"""
