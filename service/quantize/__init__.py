"""Post-training static quantization: turns a float model and a calibration set into an ordinary QDQ file (ONNX with
QuantizeLinear and DequantizeLinear).

`export` converts models that are not ONNX to ONNX. `document` reads and writes the file. `folding` simplifies the
model, and `patterns` decides what is quantized. `observing` runs the compiled float model on the inputs, and `methods`
choose a type for each tensor from the statistics. `equalizing`, `fitting` and `rounding` compute the weights, and
`rewriting` inserts the conversions into the file. `switched` and `sensitivity` measure the loss that each layer causes,
and `quantization` combines all steps. By default, layers run in int8. To raise a layer means to run it in a more
precise type instead: in 16x8, bfloat16 or float32. A mixture is a choice of a type for each layer.

The result is compiled, verified and served like any other model, and ONNX Runtime runs it too.
"""
