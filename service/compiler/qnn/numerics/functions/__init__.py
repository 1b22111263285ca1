"""Functions of values: tables, polynomials of MLAS, softmax, and normalization."""
