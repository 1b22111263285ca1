"""Conversions between types: rounding, fixed-point multipliers, and requantization."""
