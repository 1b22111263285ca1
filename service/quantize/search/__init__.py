"""Measures the loss and the latency of mixtures of layers."""
