"""Changes of the graph: simplifications, the choice of quantized tensors, and the inserted conversions."""
