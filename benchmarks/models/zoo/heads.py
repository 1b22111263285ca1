"""Networks of the zoo that packages offer only together with post-processing. Their trunks are torchvision's, and their
heads are defined here.

Runs in the environment `zoo`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found]
from torch import nn

_CLASSES = 91  # COCO's classes, with the background.
_WIDTHS = (256, 128, 64, 32, 16)  # The widths of the decoder of segmentation_models_pytorch's U-Net.


class _SsdLite(nn.Module):  # type: ignore[misc]
    """torchvision's SSDLite without its anchors and its suppression: returns `[N, boxes, 4 + classes]` of all six
    levels.
    """

    def __init__(self, models: Any) -> None:
        super().__init__()
        made = models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=_CLASSES)
        self.backbone, self.head = made.backbone, made.head

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.head(list(self.backbone(image).values()))
        return torch.cat([found["bbox_regression"], found["cls_logits"]], dim=-1)


class _Up(nn.Module):  # type: ignore[misc]
    """Nearest-neighbour upsampling by two, concatenation with the encoder's features, and two convolutions."""

    def __init__(self, channels: int, skipped: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_convolution(channels + skipped, width), *_convolution(width, width))

    def forward(self, value: torch.Tensor, skipped: torch.Tensor | None) -> torch.Tensor:
        value = nn.functional.interpolate(value, scale_factor=2.0, mode="nearest")
        return self.layers(value if skipped is None else torch.cat([value, skipped], dim=1))


def _convolution(channels: int, width: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]


class _Unet(nn.Module):  # type: ignore[misc]
    """A U-Net on torchvision's ResNet-18, with one class, as in segmentation_models_pytorch."""

    def __init__(self, models: Any) -> None:
        super().__init__()
        base = models.resnet18(weights=None)
        self.stages = nn.ModuleList(
            [
                nn.Sequential(base.conv1, base.bn1, base.relu),
                nn.Sequential(base.maxpool, base.layer1),
                *(base.layer2, base.layer3, base.layer4),
            ]
        )
        channels, skipped = (512, *_WIDTHS), (256, 128, 64, 64, 0)
        self.ups = nn.ModuleList(map(_Up, channels, skipped, _WIDTHS))
        self.last = nn.Conv2d(_WIDTHS[-1], 1, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features, value = [], image
        for stage in self.stages:
            value = stage(value)
            features.append(value)
        for up, skipped in zip(self.ups, [*features[-2::-1], None], strict=True):
            value = up(value, skipped)
        return self.last(value)


HEADS: dict[str, Callable[[Any], Any]] = {"ssdlite320": _SsdLite, "unet_resnet18": _Unet}
