"""Reads a TFLite file as plain values.

`flatbuffer` verifies the bytes by the tables of `schema`, and `reader` converts them to plain values (`tflite.model`).
"""
