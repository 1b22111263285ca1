"""Inputs and results of predictions: reads the inputs, sends them, and writes the results."""
