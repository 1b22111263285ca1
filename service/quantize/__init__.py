"""Post-training static quantization: turns a float model and a calibration set into an ordinary QDQ file (ONNX with
QuantizeLinear and DequantizeLinear).

`export` converts models that are not ONNX to ONNX, and `file` reads and writes the file. `steps` are the steps of a
quantization, in their order. They use `rewrites`, which change the file, `calibration`, which runs compiled models on
the inputs, `program`, a compiled model that runs any choice of types, `weights`, which computes weights and biases, and
`search`, which finds the layers to raise. `child` runs the steps in a sandbox, and `sandboxed` is its parent.

By default, layers run in int8. To raise a layer means to run it in a more precise type instead: in 16x8, bfloat16 or
float32. A mixture is a choice of a type for each layer.

The result is compiled, verified and served like any other model, and ONNX Runtime runs it too.
"""
