"""Changes of weights and biases that lower the loss: equalization, adaptive rounding, bias correction."""
