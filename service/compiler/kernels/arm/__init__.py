"""ARM's vector instruction sets: NEON of ARMv8.0, with dot products of signed bytes, and with those of mixed sign."""
