"""Puts quantized operators in place of float ones between DequantizeLinear and QuantizeLinear.

`operators` finds these float operators, and `fusions` defines the quantized operator for each operator type.
"""
