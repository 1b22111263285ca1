"""Sums: products of integers and of real numbers, and means, each in one fixed order."""
