"""RISC-V's vector instructions with vectors of 128 bits, which every CPU with V 1.0 supports."""
