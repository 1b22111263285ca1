"""Trains the network of `examples/train_digits.py` with PyTorch, and saves its float weights. Runs in the peers'
environment, which contains scikit-learn and its pictures of digits:

    python digits.py OUTPUT.npz

It runs on one thread with seeded random numbers. The file has the weights by name, and `train`, `test` `[N, 16, 16, 1]`
and `labels`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from sklearn.datasets import load_digits  # type: ignore[import-not-found]
from sklearn.model_selection import train_test_split  # type: ignore[import-not-found]

_SEED, _EPOCHS, _BATCH, _RATE, _SMOOTHING = 0, 60, 32, 3e-3, 0.1


class Digits(torch.nn.Module):  # type: ignore[misc]
    """A small MobileNetV2: maps `[N, 1, 16, 16]` from -1 to 1 to `[N, 10]`."""

    def __init__(self) -> None:
        super().__init__()
        conv = torch.nn.Conv2d
        self.stem, self.project = conv(1, 16, 3, padding="same"), conv(16, 24, 1)
        self.reduce = conv(16, 16, 3, stride=2, groups=16)
        self.expand, self.shrink = conv(24, 48, 1), conv(48, 24, 1)
        self.depthwise = conv(48, 48, 3, padding="same", groups=48)
        self.classify = torch.nn.Linear(24, 10)
        for weights in self.parameters():
            (torch.nn.init.kaiming_normal_ if weights.ndim > 1 else torch.nn.init.zeros_)(weights)

    def forward(self, x: Any) -> Any:
        relu6, pad = torch.nn.functional.relu6, torch.nn.functional.pad
        x = relu6(self.stem(x))
        trunk = self.project(relu6(self.reduce(pad(x, (0, 1, 0, 1)))))  # pads as TFLite's SAME does, only at the end
        x = self.shrink(relu6(self.depthwise(relu6(self.expand(trunk)))))
        return self.classify((trunk + x).mean((2, 3)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(_SEED)
    data = load_digits()
    pixels = np.minimum(data.images.astype(np.int64) * 16, 255)
    pixels = ((np.kron(pixels, np.ones((1, 2, 2))) - 128) / 128).astype(np.float32)[..., np.newaxis]
    train, test = train_test_split(np.arange(len(pixels)), test_size=0.2, random_state=_SEED, stratify=data.target)
    network = _trained(torch.from_numpy(pixels[train].transpose(0, 3, 1, 2)), torch.from_numpy(data.target[train]))
    weights = {name: values.numpy() for name, values in network.state_dict().items()}
    np.savez(sys.argv[1], train=pixels[train], test=pixels[test], labels=data.target[test], **weights)


def _trained(images: torch.Tensor, labels: torch.Tensor) -> Digits:
    network, steps = Digits(), _EPOCHS * (len(images) // _BATCH)
    optimizer = torch.optim.Adam(network.parameters(), _RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=_SMOOTHING)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(len(images))[: len(images) // _BATCH * _BATCH].reshape(-1, _BATCH):
            optimizer.zero_grad()
            loss(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    return network


if __name__ == "__main__":
    main()
