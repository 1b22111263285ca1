"""x86-64's vector instruction sets: AVX2 and AVX-512, with and without dot products of bytes."""
