"""The networks that are generated with Keras. The caller sets the weights.

Runs in the environment `tensorflow`. The ResNets are v1.5 (the stride is in the 3x3 convolution), so that their
multiply-accumulates equal torchvision's. `vww` and `ad01` have the layers of the MLPerf Tiny models, whose files are
not given.
"""

from __future__ import annotations

from typing import Any

import keras
import tf_keras
from keras import layers

from benchmarks.models.samples import SAMPLES

Tensor = Any


def build(name: str) -> Any:
    """Returns a `keras.Model` of batch 1."""
    given = layers.Input(SAMPLES[name].shape, batch_size=1)
    match name:
        case "mobilenet_v2":
            return _application(keras.applications.MobileNetV2, given)
        case "inception_v3":
            return _application(keras.applications.InceptionV3, given)
        case "vww":
            return _application(keras.applications.MobileNet, given, alpha=0.25, classes=2)
        case "ad01":
            return keras.Model(given, autoencoder(given))
        case "deeplab_v3":
            return keras.Model(given, deeplab(given))
        case "ssdlite":
            return keras.Model(given, ssdlite(given))
        case "lstm":
            return recurrent()
        case "transformer":
            return keras.Model(given, transformer(given))
        case _:
            return keras.Model(given, resnet(given, name))


def _application(network: Any, image: Tensor, **options: Any) -> Any:
    return network(input_tensor=image, weights=None, classifier_activation=None, **options)


def convolution(x: Tensor, channels: int, kernel: int, stride: int = 1, activation: bool = True) -> Tensor:
    x = layers.Conv2D(channels, kernel, stride, "same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if activation else x


def depthwise(x: Tensor, stride: int = 1, dilation: int = 1) -> Tensor:
    """A depthwise 3x3 convolution with ReLU6."""
    x = layers.DepthwiseConv2D(3, stride, "same", dilation_rate=dilation, use_bias=False)(x)
    return layers.ReLU(6.0)(layers.BatchNormalization()(x))


def resnet(image: Tensor, name: str) -> Tensor:
    wide = name == "resnet50"  # bottleneck blocks, whose outputs have four times the channels
    x = convolution(image, 64, 7, 2)
    x = layers.MaxPool2D(3, 2, "same")(x)
    for stage, blocks in enumerate([3, 4, 6, 3] if wide else [2, 2, 2, 2]):
        channels = 64 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            if wide:
                y = convolution(convolution(x, channels, 1), channels, 3, stride)
                y = convolution(y, 4 * channels, 1, activation=False)
            else:
                y = convolution(convolution(x, channels, 3, stride), channels, 3, activation=False)
            if x.shape[-1] != y.shape[-1] or stride != 1:
                x = convolution(x, y.shape[-1], 1, stride, activation=False)
            x = layers.ReLU()(layers.Add()([y, x]))
    return layers.Dense(1000)(layers.GlobalAveragePooling2D()(x))


def autoencoder(features: Tensor) -> Tensor:
    """Anomaly detection of MLPerf Tiny: ten dense layers around a bottleneck of 8."""
    x = features
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Dense(width)(x)))
    return layers.Dense(features.shape[-1])(x)


def deeplab(image: Tensor) -> Tensor:
    """DeepLabV3 on MobileNetV2 with an output stride of 16, as the hosted mobile model: 21 classes for each pixel."""
    backbone = keras.applications.MobileNetV2(input_tensor=image, include_top=False, weights=None)
    x = backbone.get_layer("block_12_add").output
    for channels in (160, 160, 160, 320):  # blocks 13 to 16, dilated instead of strided
        y = depthwise(layers.ReLU(6.0)(convolution(x, 6 * x.shape[-1], 1, activation=False)), dilation=2)
        y = convolution(y, channels, 1, activation=False)
        x = layers.Add()([x, y]) if x.shape[-1] == channels else y
    pooled = convolution(layers.GlobalAveragePooling2D(keepdims=True)(x), 256, 1)
    pooled = layers.Resizing(*x.shape[1:3], interpolation="bilinear")(pooled)
    x = layers.Concatenate()([pooled, convolution(x, 256, 1)])
    x = layers.Conv2D(21, 1)(convolution(x, 256, 1))
    return layers.Resizing(*image.shape[1:3], interpolation="bilinear")(x)


def ssdlite(image: Tensor) -> list[Tensor]:
    """Boxes `[1, anchors, 4]` and scores of 91 classes `[1, anchors, 91]`, before they are decoded."""
    backbone = keras.applications.MobileNetV2(input_tensor=image, include_top=False, weights=None)
    maps = [backbone.get_layer("block_13_expand_relu").output, backbone.output]
    for channels in (512, 256, 256, 128):
        x = depthwise(convolution(maps[-1], channels // 2, 1), stride=2)
        maps.append(convolution(x, channels, 1))
    boxes, scores = [], []
    for index, x in enumerate(maps):
        anchors = 3 if index == 0 else 6
        boxes.append(layers.Reshape((-1, 4))(layers.Conv2D(4 * anchors, 1)(depthwise(x))))
        scores.append(layers.Reshape((-1, 91))(layers.Conv2D(91 * anchors, 1)(depthwise(x))))
    return [layers.Concatenate(1)(boxes), layers.Activation("sigmoid")(layers.Concatenate(1)(scores))]


def recurrent() -> Any:
    """Built with Keras 2, because the converter turns the LSTM of Keras 2 into one operator, but that of Keras 3 into
    loops."""
    layers = tf_keras.layers
    stack = [layers.LSTM(128, return_sequences=True), layers.LSTM(128), layers.Dense(12)]
    return tf_keras.Sequential([layers.Input(SAMPLES["lstm"].shape, batch_size=1), *stack])


def transformer(tokens: Tensor, count: int = 4, heads: int = 4, hidden: int = 1024) -> Tensor:
    """An encoder of the size of BERT-mini. Its input is already embedded."""
    x, width = tokens, tokens.shape[-1]
    for _ in range(count):
        attended = layers.MultiHeadAttention(heads, width // heads)(x, x)
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, attended]))
        y = dense(layers.Activation("gelu")(dense(x, hidden)), width)
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, y]))
    return x


def dense(x: Tensor, width: int) -> Tensor:
    """A dense layer on each token. `layers.Dense` would leave shapes in the TFLite file open."""
    return layers.EinsumDense("btc,cd->btd", (x.shape[1], width), bias_axes="d")(x)
