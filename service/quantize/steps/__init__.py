"""The steps of a quantization with a calibration set, in their order. Each is a function of typed data.

- `fold` simplifies the float model and plans what is quantized.
- `program` builds the model that is observed.
- `observe` runs the compiled float model on the inputs and collects the statistics of its tensors.
- `choose` chooses the types of tensors from the statistics.
- `fit` computes the stored weights and biases of layers.
- `rewrite` inserts the conversions, and returns the quantized file.
- `check` runs the float and the quantized model, and measures the difference.
- `write` writes the file and the report.

`options` are the options of all steps. The step before `fold` is the import of the float model (`export.model`).
`quantization.Calibration` connects the steps for callers that try several choices, and `mixtures` chooses the layers
that do not run in int8.
"""
