"""Selection: chooses hand-written kernels for operators, lays out the tensors between them, and emits the calls.

- `select`: the pass itself, which writes the new function.
- `groups`: divides the operators of a model into groups, each of which one kernel may compute.
- `rows`: finds regions of operators that one kernel computes row by row.
- `recurrent`: finds chains of LSTM steps.
- `seen`: reshapes, permutations and slices as views of other tensors.
- `moves`, `moving`: operators that only copy elements, and which of them kernels compute.
- `plan`: which groups have kernels, and the layouts of their tensors.
- `selection`: the result.
"""
