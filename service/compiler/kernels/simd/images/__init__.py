"""Operators on 8-bit images other than convolutions.

- `pool`: maximum and average pooling, and means.
- `resize`, `pixels`: bilinear and nearest-neighbor resizing.
- `concat`: concatenation of channels.
- `elementwise`: operators of two images.
- `table`: applies a lookup table to each byte.
"""
