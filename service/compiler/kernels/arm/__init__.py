"""ARM's vector instruction sets: NEON of ARMv8.0, and NEON with dot products of signed bytes, or of unsigned and signed
bytes."""
