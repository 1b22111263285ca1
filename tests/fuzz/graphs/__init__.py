"""Random valid quantized graphs are built and compared, value by value, with their reference runtime."""
