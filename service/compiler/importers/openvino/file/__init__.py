"""Reads the two files of an IR: the archive (`package`), the XML (`xml`), the graph (`reader`), the constants
(`weights`).
"""
