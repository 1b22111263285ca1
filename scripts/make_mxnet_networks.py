"""Quantizes 61 small networks with MXNet: each layer of Gluon and its model zoo, and each option of MXNet's
quantization. `python -m scripts.mxnet_rate FOLDER` then reports how many of them Octet compiles.

Run it in the environment of MXNet 1.9.1 (`scripts/make_mxnet_fixtures.py`):

    DIR/bin/python scripts/make_mxnet_networks.py FOLDER [NAME...]

Each network is three files: NAME-symbol.json, NAME-0000.params and NAME.npz, which has `inputs` `[samples, ...]` and
`outputs` `[samples, ...]` (`output_1`, … for further outputs). The program prints the networks that MXNet itself cannot
quantize or run; it writes no files for them.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

for _name, _type in (("bool", bool), ("float", float), ("int", int), ("object", object)):
    if _name not in np.__dict__:  # MXNet 1.9.1 uses this name, which NumPy 1.24 removed
        setattr(np, _name, _type)

import mxnet as mx  # noqa: E402
from mxnet.contrib.quantization import quantize_net_v2  # noqa: E402
from mxnet.gluon import nn  # noqa: E402

Network = Callable[[Any, Any], Any]  # (F, x) -> the result
SAMPLES = 3
QUIET = logging.getLogger("quantize")
QUIET.setLevel(logging.ERROR)
IMAGE = (2, 3, 8, 8)


class Block(nn.HybridBlock):  # type: ignore[misc]
    """A network of layers, which `forward` applies to the input."""

    def __init__(self, forward: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.apply_layers = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.apply_layers(F, self, x)


def chain(*layers: Any) -> Any:
    net = nn.HybridSequential()
    for layer in layers:
        net.add(layer)
    return net


def conv(filters: int = 8, kernel: Any = 3, **options: Any) -> Any:
    return nn.Conv2D(filters, kernel, **{"padding": 1 if kernel == 3 else 0, **options})


def activated(make: Callable[[], Any]) -> Any:
    """A convolution with an activation, a pooling, and a layer whose activation follows it too."""
    return chain(conv(), make(), nn.MaxPool2D(), conv(12), make(), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(6))


def dense(make: Callable[[], Any]) -> Any:
    return chain(conv(4, strides=2), nn.Flatten(), nn.Dense(16), make(), nn.Dense(6))


def between(function: Callable[[Any, Any], Any]) -> Any:
    """A function of the sum of two convolutions, which MXNet computes in float between quantized layers."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        return net.head(function(F, F.elemwise_add(net.a(x), net.b(x))))

    head = chain(conv(6, strides=2), nn.Flatten(), nn.Dense(6))
    return Block(forward, stem=conv(), a=conv(), b=conv(), head=head)


def shuffled(F: Any, x: Any) -> Any:
    """ShuffleNet's permutation of channels."""
    groups = F.swapaxes(F.reshape(x, shape=(0, -4, 2, -1, -2)), 1, 2)
    return F.reshape(groups, shape=(0, -3, -2))


def residual(late: bool) -> Any:
    """A sum of convolutions, with an activation after it or not, inside a network."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        total = net.bn(net.a(x)) + x
        total = F.Activation(total, act_type="relu") if late else total
        return net.head(total)

    head = chain(conv(6, strides=2), nn.Flatten(), nn.Dense(6))
    return Block(forward, stem=chain(conv(), nn.Activation("relu")), a=conv(), bn=nn.BatchNorm(), head=head)


def summed(act: str) -> Any:
    """A sum of an activated convolution."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        return net.head(F.elemwise_add(F.Activation(net.a(x), act_type=act), net.b(x)))

    return Block(forward, stem=conv(), a=conv(), b=conv(), head=chain(conv(6, strides=2), nn.Flatten(), nn.Dense(6)))


def join_branches(*names: str) -> Any:
    """A concatenation of branches with different activations."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        parts = [net.a(x), net.b(x), net.c(x)]
        return net.head(F.concat(*parts, dim=1))

    branches = {
        name: chain(conv(4), nn.Activation("relu")) if kind == "relu" else conv(4, use_bias=kind == "bias")
        for name, kind in zip("abc", names, strict=True)
    }
    return Block(forward, stem=conv(), head=chain(conv(6, strides=2), nn.Flatten(), nn.Dense(6)), **branches)


def fire() -> Any:
    """SqueezeNet's module."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = F.relu(net.squeeze(net.stem(x)))
        x = F.concat(F.relu(net.small(x)), F.relu(net.large(x)), dim=1)
        return F.flatten(net.pool(F.relu(net.last(net.drop(x)))))

    return Block(
        forward, stem=chain(conv(12, strides=2), nn.Activation("relu"), nn.MaxPool2D(3, 2, ceil_mode=True)),
        squeeze=conv(4, 1), small=conv(8, 1), large=conv(8), drop=nn.Dropout(0.5), last=conv(6, 1),
        pool=nn.GlobalAvgPool2D(),
    )  # fmt: skip


def dense_block() -> Any:
    """DenseNet's pre-activation: normalizations that no convolution precedes."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        x = F.concat(x, net.a(x), dim=1)
        x = F.concat(x, net.b(x), dim=1)
        return net.head(x)

    def layer() -> Any:
        return chain(
            nn.BatchNorm(), nn.Activation("relu"), conv(8, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"),
            conv(4, use_bias=False), nn.Dropout(0.2),
        )  # fmt: skip

    head = chain(
        nn.BatchNorm(), nn.Activation("relu"), conv(6, 1, use_bias=False), nn.AvgPool2D(2, 2), nn.Flatten(), nn.Dense(6)
    )
    return Block(forward, stem=conv(8, use_bias=False), a=layer(), b=layer(), head=head)


def inverted(act: str) -> Any:
    """MobileNet's inverted bottleneck."""

    def relu6(F: Any, x: Any) -> Any:
        return F.clip(x, 0, 6)

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = relu6(F, net.sn(net.stem(x)))
        y = relu6(F, net.an(net.a(x)))
        y = relu6(F, net.bn(net.b(y)))
        x = net.cn(net.c(y)) + x if act == "sum" else net.cn(net.c(y))
        return F.flatten(net.pred(net.pool(x)))

    return Block(
        forward, stem=conv(8), sn=nn.BatchNorm(), a=conv(16, 1, use_bias=False), an=nn.BatchNorm(),
        b=conv(16, groups=16, use_bias=False), bn=nn.BatchNorm(), c=conv(8, 1, use_bias=False), cn=nn.BatchNorm(),
        pool=nn.GlobalAvgPool2D(), pred=conv(6, 1, use_bias=False),
    )  # fmt: skip


def squeeze_excite() -> Any:
    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        gate = F.sigmoid(net.up(F.relu(net.down(F.contrib.AdaptiveAvgPooling2D(x, output_size=1)))))
        return net.head(F.broadcast_mul(x, gate))

    return Block(
        forward, stem=conv(8), down=conv(4, 1), up=conv(8, 1), head=chain(conv(6, strides=2), nn.Flatten(), nn.Dense(6))
    )


def heads() -> Any:
    """A detector's outputs: transposed, reshaped and joined, and two results."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        y = net.down(x)
        flat = [F.reshape(F.transpose(net.a(each), axes=(0, 2, 3, 1)), shape=(0, -1, 4)) for each in (x, y)]
        scores = [F.flatten(F.transpose(net.b(each), axes=(0, 2, 3, 1))) for each in (x, y)]
        return F.concat(*flat, dim=1), F.softmax(F.reshape(F.concat(*scores, dim=1), shape=(0, -1, 2)))

    return Block(
        forward, stem=chain(conv(), nn.Activation("relu")), down=chain(conv(strides=2), nn.Activation("relu")),
        a=conv(4), b=conv(2),
    )  # fmt: skip


def upsampled() -> Any:
    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        y = F.UpSampling(net.down(x), scale=2, sample_type="nearest")
        return net.head(F.concat(x, y, dim=1))

    return Block(forward, stem=conv(), down=conv(strides=2), head=chain(conv(6, strides=2), nn.Flatten(), nn.Dense(6)))


def transposed() -> Any:
    return chain(conv(), nn.Activation("relu"), nn.Conv2DTranspose(4, 2, 2), conv(6), nn.Flatten(), nn.Dense(6))


def embedded() -> Any:
    """Words of a text, whose indices are floats in MXNet."""
    return chain(nn.Embedding(20, 8), nn.Flatten(), nn.Dense(16, activation="relu"), nn.Dense(6))


def multiplied() -> Any:
    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.stem(x)
        return net.head(F.elemwise_mul(net.a(x), net.b(x)))

    return Block(forward, stem=conv(), a=conv(), b=conv(), head=chain(conv(6, strides=2), nn.Flatten(), nn.Dense(6)))


def rows() -> Any:
    """Layers on rows of a sequence, with a normalization and a mean."""

    def forward(F: Any, net: Any, x: Any) -> Any:
        x = net.b(F.LeakyReLU(net.a(x), act_type="gelu"))
        return F.mean(net.norm(x), axis=1)

    return Block(
        forward, a=nn.Dense(16, flatten=False), b=nn.Dense(8, flatten=False), norm=nn.LayerNorm(),
    )  # fmt: skip


def one_dimensional() -> Any:
    return chain(nn.Conv1D(8, 3, padding=1), nn.Activation("relu"), nn.MaxPool1D(2), nn.Flatten(), nn.Dense(6))


def zero_bias() -> Any:
    return chain(conv(bias_initializer="zeros"), nn.Flatten(), nn.Dense(8, bias_initializer="zeros"), nn.Dense(6))


def plain(activation: str | None = "relu") -> Any:
    layers = [conv(), nn.BatchNorm(), *([nn.Activation(activation)] if activation else []), nn.MaxPool2D(2)]
    return chain(*layers, conv(12), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(6))


def classifier(end: Callable[[Any, Any], Any]) -> Any:
    return Block(lambda F, net, x: end(F, net.body(x)), body=plain())


# name -> the network, its input shape, and options of `quantize_net_v2`
NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...], dict[str, Any]]] = {
    "plain": (plain, IMAGE, {}),
    "plain_int8": (plain, IMAGE, {"quantized_dtype": "int8"}),
    "plain_smart": (plain, IMAGE, {"quantize_mode": "smart"}),
    "plain_channels": (plain, IMAGE, {"quantize_granularity": "channel-wise"}),
    "plain_entropy": (plain, IMAGE, {"calib_mode": "entropy"}),
    "plain_uncalibrated": (plain, IMAGE, {"calib_mode": "none"}),
    "excluded": (plain, IMAGE, {"exclude_layers_match": ["conv1"]}),
    "excluded_dense": (plain, IMAGE, {"exclude_operators": ["FullyConnected"]}),
    "excluded_pooling": (plain, IMAGE, {"exclude_operators": ["Pooling"]}),
    "smart_residual": (lambda: residual(True), IMAGE, {"quantize_mode": "smart"}),
    "residual": (lambda: residual(False), IMAGE, {}),
    "residual_relu": (lambda: residual(True), IMAGE, {}),
    "joined": (lambda: join_branches("relu", "", "bias"), IMAGE, {}),
    "joined_relu": (lambda: join_branches("relu", "relu", "relu"), IMAGE, {"quantize_granularity": "channel-wise"}),
    "fire": (fire, IMAGE, {}),
    "dense_block": (dense_block, IMAGE, {}),
    "inverted": (lambda: inverted("sum"), IMAGE, {}),
    "inverted_channels": (lambda: inverted(""), IMAGE, {"quantize_granularity": "channel-wise"}),
    "squeeze_excite": (squeeze_excite, IMAGE, {}),
    "heads": (heads, IMAGE, {}),
    "upsampled": (upsampled, IMAGE, {}),
    "transposed": (transposed, IMAGE, {}),
    "embedded": (embedded, (2, 5), {}),
    "multiplied": (multiplied, IMAGE, {}),
    "rows": (rows, (2, 4, 8), {}),
    "one_dimensional": (one_dimensional, (2, 3, 12), {"exclude_layers_match": ["conv", "pool"]}),
    "zero_bias": (zero_bias, IMAGE, {}),
    "softmax": (lambda: classifier(lambda F, x: F.softmax(x)), IMAGE, {}),
    "log_softmax": (lambda: classifier(lambda F, x: F.log_softmax(x, axis=-1)), IMAGE, {}),
    "argmax": (lambda: classifier(lambda F, x: F.argmax(x, axis=1)), IMAGE, {}),
    "gated_sum": (lambda: summed("sigmoid"), IMAGE, {}),
    "activated_sum": (lambda: summed("relu"), IMAGE, {}),
    "normalized": (lambda: classifier(lambda F, x: F.L2Normalization(x)), IMAGE, {}),
    **{
        f"conv_{act}": (partial(activated, partial(nn.Activation, act)), IMAGE, {})
        for act in ("sigmoid", "tanh", "softrelu", "softsign")
    },
    **{
        f"conv_{name}": (partial(activated, make), IMAGE, {})
        for name, make in {
            "leaky": lambda: nn.LeakyReLU(0.1), "elu": lambda: nn.ELU(0.7), "selu": nn.SELU, "gelu": nn.GELU,
            "prelu": nn.PReLU,
        }.items()
    },
    **{
        f"dense_{name}": (partial(dense, make), IMAGE, {"quantize_granularity": f"{granularity}-wise"})
        for name, make, granularity in (
            ("relu", lambda: nn.Activation("relu"), "channel"),
            ("sigmoid", lambda: nn.Activation("sigmoid"), "tensor"),
            ("tanh", lambda: nn.Activation("tanh"), "channel"),
            ("softrelu", lambda: nn.Activation("softrelu"), "tensor"),
            ("leaky", lambda: nn.LeakyReLU(0.1), "tensor"), ("elu", nn.ELU, "tensor"),
            ("clipped", lambda: nn.HybridLambda(lambda F, x: F.clip(x, -0.4, 0.7)), "tensor"),
            ("square", lambda: nn.HybridLambda("square"), "tensor"),
            ("sqrt", lambda: nn.HybridLambda(lambda F, x: F.sqrt(F.abs(x))), "channel"),
            ("exp", lambda: nn.HybridLambda("exp"), "tensor"),
        )
    },
    **{
        f"between_{name}": (partial(between, function), IMAGE, {})
        for name, function in {
            "relu": lambda F, x: F.relu(x),
            "numbers": lambda F, x: F.maximum(1 - (x * 0.5 + 0.25) / 0.7, -0.5) ** 2,
            "pad": lambda F, x: F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 2, 1), constant_value=0.5),
            "slice": lambda F, x: F.slice_axis(x, axis=1, begin=2, end=6),
            "mean": lambda F, x: F.broadcast_sub(x, F.mean(x, axis=(2, 3), keepdims=True)),
            "split": lambda F, x: F.broadcast_add(*F.split(x, num_outputs=2, axis=1)),
            "shuffle": shuffled,
            "resize": lambda F, x: F.contrib.BilinearResize2D(x, height=6, width=6),
            "instance_norm": lambda F, x: F.InstanceNorm(x, F.ones((8,)), F.zeros((8,))),
            "lrn": lambda F, x: F.LRN(x, nsize=3),
        }.items()
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="networks to make, in place of all")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.names or NETWORKS:
        try:
            make(given.folder, name)
        except Exception as exc:  # MXNet raises errors of many classes
            print(f"{name}: MXNet cannot: {str(exc).strip().splitlines()[-1][:160]}", flush=True)


def make(folder: Path, name: str) -> None:
    build, shape, options = NETWORKS[name]
    mx.random.seed(5)
    np.random.seed(5)
    rng = np.random.RandomState(5)
    net = build()
    net.initialize(mx.init.Xavier(magnitude=3))
    whole = name == "embedded"

    def data(*size: int) -> Any:
        values = rng.randint(0, 20, size) if whole else rng.uniform(-1.5, 2.0, size)
        return values.astype(np.float32)

    calibration = data(4 * shape[0], *shape[1:])
    with mx.autograd.record(train_mode=True):  # so that the moving statistics are computed from this data
        for _ in range(8):
            net(mx.nd.array(calibration))
    for key, value in net.collect_params().items():
        if key.endswith(("bias", "beta")) and "zero" not in name:
            value.set_data(mx.nd.array(rng.uniform(-0.3, 0.3, value.shape)))
    net.hybridize()
    net(mx.nd.array(calibration[: shape[0]])).wait_to_read() if name != "heads" else net(mx.nd.array(calibration[:2]))
    calibrated = {"calib_mode": "naive", "quantized_dtype": "auto", **options}
    made = quantize_net_v2(
        net, ctx=mx.cpu(), logger=QUIET, num_calib_examples=len(calibration),
        data_shapes=[mx.io.DataDesc("data", shape)],
        calib_data=mx.io.NDArrayIter(data={"data": calibration}, batch_size=shape[0]), **calibrated,
    )  # fmt: skip
    inputs = np.stack([data(*shape) for _ in range(SAMPLES)])
    if not whole:
        inputs[-1] *= 2  # beyond the calibrated range
    made.hybridize(static_alloc=False)
    outputs = [made(mx.nd.array(each)) for each in inputs]
    lists = [each if isinstance(each, (list, tuple)) else [each] for each in outputs]
    stacked = [np.stack([each[at].asnumpy() for each in lists]) for at in range(len(lists[0]))]
    made.export(str(folder / name), epoch=0)
    path = folder / f"{name}-symbol.json"
    path.write_text(json.dumps(json.loads(path.read_text()), separators=(",", ":")) + "\n")
    named: dict[str, Any] = {"outputs": stacked[0], **{f"output_{at}": each for at, each in enumerate(stacked) if at}}
    np.savez_compressed(folder / f"{name}.npz", inputs=inputs, **named)


if __name__ == "__main__":
    main()
