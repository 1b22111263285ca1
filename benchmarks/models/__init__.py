"""The models that are compared, and the making of those that are not given.

`catalog` lists them. `python -m benchmarks.models` makes what is missing: architectures with random seeded weights
(only their speed means something), in every format that a contestant wants, each made in the environment of the
framework that writes it; and variants of a TFLite file with another batch size or with symmetric weights.
"""
