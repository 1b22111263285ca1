"""The zoo: networks of public packages with seeded random weights, quantized by the tools that their users run."""
