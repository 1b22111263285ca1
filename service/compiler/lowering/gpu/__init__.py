"""Functions that no hand-written kernel computes, for cards: canonical tensor programs as CUDA C++."""
