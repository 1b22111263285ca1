"""Networks that torchvision lacks.

Runs in the environment `torch`.
"""

from __future__ import annotations

import torch  # type: ignore[import-not-found]
from torch import nn

LAYERS, WIDTH, HEADS, HIDDEN = 4, 256, 4, 1024  # the sizes of BERT-mini


class Layer(nn.Module):  # type: ignore[misc]
    """Self-attention and two dense layers, each added to its input and normalized, as in BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.joined = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps `[batch, tokens, WIDTH]` to the same shape."""
        queries, keys, values = (self.heads(layer(x)) for layer in (self.queries, self.keys, self.values))
        scores = torch.softmax(queries @ keys.transpose(2, 3) / (WIDTH // HEADS) ** 0.5, dim=-1)
        attended = (scores @ values).transpose(1, 2).reshape(x.shape)
        x = self.first_norm(x + self.joined(attended))
        return self.second_norm(x + self.narrow(nn.functional.gelu(self.wide(x))))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)


def transformer() -> nn.Module:
    """An encoder of the size of BERT-mini. Its input is already embedded."""
    return nn.Sequential(*(Layer() for _ in range(LAYERS)))
