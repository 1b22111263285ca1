"""Readers of the program and of the delegate's graph, and their schemas. Every size and index is checked."""
