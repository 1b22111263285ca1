"""Random valid quantized graphs, built for real and compared value by value with their reference runtime."""
