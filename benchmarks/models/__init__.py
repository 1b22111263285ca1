"""The models of the contest, and the code that creates the models of which no file is supplied.

`catalog` lists them. `python -m benchmarks.models` creates the missing ones: architectures with seeded random weights
(only their speed is meaningful), in every format that a contestant needs, each in the environment of the framework that
writes it; and variants of a TFLite file with another batch size or with symmetric weights.
"""
