"""Selection: chooses hand-written kernels for operators, lays out the tensors between them, and emits the calls.

- `select`: the pass itself, which writes the new function.
- `groups`: divides the operators of a model into groups. One kernel may compute each group.
- `rows`: finds regions of operators that one kernel computes row by row.
- `recurrent`: finds chains of LSTM steps.
- `seen`: describes reshapes, permutations and slices as views of other tensors.
- `moves`: finds operators that only copy elements; `moving` decides which of these operators kernels compute.
- `plan`: decides which groups have kernels, and the layouts of their tensors.
- `tensors`: emits each tensor as a plain tensor or an image, when it is first needed in that form.
- `selection`: the result of selection.

Terms: an *image* is a tensor in the layout of SIMD kernels (`kernels.layout.Image`): 8-bit, channels in blocks, with a
border (the *halo*) for convolutions. A *plain* or contiguous tensor has the layout of the model file. A *layout change*
is a `pack` kernel (plain tensor to image) or an `unpack` kernel (image to plain tensor).
"""
