"""Post-training static quantization: a float model and some of its inputs -> an ordinary QDQ file.

`export` writes what is not ONNX as ONNX. `document` reads and writes the file, `folding` and `patterns` say what of it
is quantized, `observing` runs the compiled float model on the inputs, `methods` choose a type for each tensor by what
was seen, `equalizing`, `fitting` and `rounding` find the weights, `rewriting` puts conversions into the file,
`switched` and `sensitivity` find what each layer costs, and `quantization` is the whole.

The result is compiled, verified and served like any other model; ONNX Runtime runs it too.
"""
