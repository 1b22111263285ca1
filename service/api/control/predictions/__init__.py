"""Predictions by task: reads their samples, sends them to the data plane, and runs them as jobs."""
