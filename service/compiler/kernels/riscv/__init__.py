"""RISC-V's vector instructions, as far as every CPU with V 1.0 has them: 128 bits."""
