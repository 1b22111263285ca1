"""Creates the MXNet models of tests/fixtures/mxnet, with some inputs and MXNet's outputs for them.

MXNet 1.9.1 needs an older NumPy than Octet, so it needs an environment of its own (Python 3.11):

    python -m venv DIR && DIR/bin/pip install mxnet==1.9.1 numpy==1.23.5
    DIR/bin/python scripts/make_mxnet_fixtures.py tests/fixtures/mxnet
    DIR/bin/python scripts/make_mxnet_fixtures.py --zoo resnet18_v1,resnet50_v1,mobilenetv2_1.0,inceptionv3 FOLDER

Each model is three files: NAME-symbol.json, NAME-0000.params and NAME.npz, which has `inputs` `[samples, ...]` and
`outputs` `[samples, ...]`. Weights are random and seeded. The models `sg_*` contain oneDNN subgraphs, as
`quantize_model_mkldnn` writes them; the models `contrib_*` contain `_contrib_quantized_*` operators. MXNet computes
int8 convolutions with oneDNN's code for the processor at hand, so create the files on a machine with AVX-512 VNNI.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

for _name, _type in (("bool", bool), ("float", float), ("int", int), ("object", object)):
    if _name not in np.__dict__:  # MXNet 1.9.1 uses this name, which NumPy 1.24 removed
        setattr(np, _name, _type)

import mxnet as mx  # noqa: E402
from mxnet import sym as S  # noqa: E402
from mxnet.contrib.quantization import quantize_model_mkldnn  # noqa: E402

SAMPLES = 6
LABEL = "softmax_label"  # MXNet's name for the labels of the output `softmax`
QUIET = logging.getLogger("quantize")
QUIET.setLevel(logging.ERROR)


def block(
    x: Any,
    name: str,
    filters: int,
    kernel: int = 3,
    stride: int = 1,
    act: str = "relu",
    groups: int = 1,
    pad: int | None = None,
    bn: bool = True,
    bias: bool = False,
) -> Any:
    """Convolution, batch normalization and activation."""
    pad = kernel // 2 if pad is None else pad
    x = S.Convolution(
        x,
        name=f"{name}_conv",
        num_filter=filters,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(pad, pad),
        num_group=groups,
        no_bias=not bias,
    )
    if bn:
        x = S.BatchNorm(x, name=f"{name}_bn", fix_gamma=False, eps=1e-5)
    if act == "relu":
        x = S.Activation(x, act_type="relu", name=f"{name}_relu")
    elif act == "relu6":
        x = S.clip(x, a_min=0, a_max=6, name=f"{name}_relu6")
    return x


def sg_residual(x: Any) -> Any:
    """ResNet: identity and projected shortcuts, sums with and without an activation, global pooling, float outputs."""
    x = block(x, "stem", 12)
    x = S.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", name="pool0")
    y = block(block(x, "a1", 12), "a2", 12, act="")
    x = S.Activation(y + x, act_type="relu", name="a_relu")
    y = block(block(x, "b1", 20, stride=2), "b2", 20, act="")
    x = S.Activation(y + block(x, "bs", 20, kernel=1, stride=2, act=""), act_type="relu", name="b_relu")
    x = S.Pooling(x, kernel=(1, 1), global_pool=True, pool_type="avg", name="pool1")
    return S.FullyConnected(S.flatten(x, name="flat"), num_hidden=10, name="fc")


def sg_inverted(x: Any) -> Any:
    """MobileNetV2: ReLU6, depthwise, linear bottlenecks, a sum without an activation."""
    x = block(x, "stem", 8, stride=2, act="relu6")
    for name, outer in (("a", 8), ("b", 8)):
        y = block(x, f"{name}1", 16, kernel=1, act="relu6")
        y = block(y, f"{name}2", 16, groups=16, act="relu6")
        y = block(y, f"{name}3", outer, kernel=1, act="")
        x = S.elemwise_add(y, x, name=f"{name}_sum") if name == "b" else y
    x = block(x, "head", 24, kernel=1, act="relu6")
    x = S.Pooling(x, kernel=(1, 1), global_pool=True, pool_type="avg", name="pool")
    x = S.Convolution(x, num_filter=10, kernel=(1, 1), no_bias=True, name="pred")
    return S.flatten(x, name="flat")


def sg_inception(x: Any) -> Any:
    """Inception: branches of different ranges, pools of every kind, convolutions that are not square, biases."""
    x = block(x, "stem", 8, kernel=3, pad=0, bias=True)
    pooled = S.Pooling(x, kernel=(3, 3), stride=(1, 1), pad=(1, 1), pool_type="avg", name="avg")
    excluded = S.Pooling(
        x, kernel=(3, 3), stride=(1, 1), pad=(1, 1), pool_type="avg", count_include_pad=False, name="avg_excluded"
    )
    wide = S.Convolution(x, kernel=(1, 5), pad=(0, 2), num_filter=6, name="wide")
    x = S.concat(
        block(x, "b1", 6, kernel=1),
        block(pooled, "b2", 5, kernel=1, bn=False, bias=True),
        block(excluded, "b3", 5, kernel=1, bn=False),
        S.Activation(wide, act_type="relu", name="wide_relu"),
        dim=1,
        name="joined",
    )
    x = S.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="max", pooling_convention="full", name="max")
    x = S.Convolution(x, kernel=(3, 3), dilate=(2, 2), pad=(2, 2), num_group=2, num_filter=8, name="grouped")
    x = S.FullyConnected(S.flatten(x, name="flat"), num_hidden=16, name="fc1")
    x = S.Activation(x, act_type="relu", name="fc1_relu")
    return S.FullyConnected(x, num_hidden=10, no_bias=True, name="fc2")


def sg_float(x: Any) -> Any:
    """Operators that MXNet leaves in float between quantized layers, a sum of int8 that it writes over uint8, and a
    dense layer whose bias is all zeros."""
    x = block(x, "stem", 8, bn=False, bias=True)
    y = S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name="branch")
    x = S.relu(S.elemwise_add(y, x, name="sum"), name="apart")
    x = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    x = S.Activation(S.Convolution(x, kernel=(3, 3), num_filter=8, name="last"), act_type="tanh", name="bent")
    return S.FullyConnected(S.flatten(x, name="flat"), num_hidden=6, name="zero")


def sg_softmax(x: Any) -> Any:
    """A classifier of the Module API, which ends in SoftmaxOutput and has labels."""
    x = S.Pooling(block(x, "stem", 8), kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    return S.SoftmaxOutput(S.FullyConnected(S.flatten(x, name="flat"), num_hidden=6, name="fc"), name="softmax")


# name -> network, input shape, input range, granularity
SUBGRAPH_MODELS = {
    "sg_residual": (sg_residual, (1, 3, 24, 24), (-2.0, 2.0), "channel-wise"),
    "sg_inverted": (sg_inverted, (2, 3, 20, 20), (0.0, 1.0), "channel-wise"),
    "sg_inception": (sg_inception, (1, 4, 13, 13), (0.0, 1.0), "tensor-wise"),
    "sg_channels": (sg_inception, (1, 4, 13, 13), (-1.0, 1.0), "channel-wise"),
    "sg_float": (sg_float, (1, 3, 8, 8), (-2.0, 2.0), "tensor-wise"),
    "sg_softmax": (sg_softmax, (1, 3, 8, 8), (-2.0, 2.0), "channel-wise"),
}


def make_subgraph(folder: Path, name: str) -> None:
    network, shape, (low, high), granularity = SUBGRAPH_MODELS[name]
    rng = np.random.RandomState(len(name))
    symbol = network(S.Variable("data", shape=shape))
    arg, aux = parameters(symbol, shape, rng)
    data = rng.uniform(low, high, (8 * shape[0], *shape[1:])).astype(np.float32)
    symbol, arg, aux = quantized(symbol, arg, aux, data, shape[0], granularity)
    write(folder, name, symbol, arg, aux, samples(rng, shape, low, high))


def quantized(symbol: Any, arg: Any, aux: Any, data: Any, batch: int, granularity: str) -> tuple[Any, Any, Any]:
    labels = {LABEL: np.zeros(len(data), np.float32)} if LABEL in symbol.list_arguments() else None
    model: tuple[Any, Any, Any] = quantize_model_mkldnn(
        sym=symbol,
        arg_params=arg,
        aux_params=aux,
        ctx=mx.cpu(),
        excluded_sym_names=[],
        calib_mode="naive",
        calib_data=mx.io.NDArrayIter(data={"data": data}, label=labels, batch_size=batch),
        num_calib_examples=len(data),
        quantized_dtype="auto",
        quantize_mode="smart",
        quantize_granularity=granularity,
        logger=QUIET,
        data_names=("data",),
        label_names=labels and (LABEL,),
    )
    return model


def parameters(symbol: Any, shape: tuple[int, ...], rng: Any) -> tuple[Any, Any]:
    """Random weights whose channels have different magnitudes, and matching batch statistics."""
    shapes, _, aux_shapes = symbol.infer_shape(data=shape)
    named = zip(symbol.list_arguments(), shapes, strict=True)
    arg = {n: value(n, s, rng) for n, s in named if n not in ("data", LABEL)}
    aux = {n: value(n, s, rng) for n, s in zip(symbol.list_auxiliary_states(), aux_shapes, strict=True)}
    return arg, aux


def value(name: str, shape: tuple[int, ...], rng: Any) -> Any:
    if name.endswith("weight"):
        fan_in = np.prod(shape[1:])
        sizes = rng.uniform(0.3, 2.0, (shape[0],) + (1,) * (len(shape) - 1))
        array = rng.randn(*shape) * sizes * np.sqrt(2.0 / fan_in)
    elif name.endswith(("gamma", "var")):
        array = rng.uniform(0.5, 1.5, shape)
    elif name == "zero_bias":
        array = np.zeros(shape)
    else:
        array = rng.randn(*shape) * 0.2
    return mx.nd.array(array.astype(np.float32))


def contrib_chain() -> tuple[Any, Any, Any]:
    """Each `_contrib_*` operator that runs on a CPU, where convolutions accept only uint8. The network has 16 channels,
    because for fewer channels oneDNN 2.4 may use a kernel of SSE4.1, which saturates pairs of products to 16 bits.
    """
    rng = np.random.RandomState(7)
    shape = (2, 16, 8, 8)
    params: dict[str, Any] = {}

    def constant(name: str, array: Any) -> Any:
        params[name] = mx.nd.array(array, dtype=array.dtype)
        return S.Variable(name, shape=array.shape, dtype=array.dtype)

    def limits(name: str, high: float) -> list[Any]:
        return [
            constant(f"{name}_{end}", np.array([edge], np.float32)) for end, edge in (("min", -high), ("max", high))
        ]

    def weights(name: str, *size: int) -> Any:
        return constant(name, rng.randint(-127, 128, size).astype(np.int8))

    def conv(x: Any, name: str, filters: int, channels: int, **attrs: Any) -> Any:
        weight = weights(f"{name}_weight", filters, channels, 3, 3)
        least, most = limits(f"{name}_weight", 0.4)
        return S.contrib.quantized_conv(
            data=x[0], weight=weight, min_data=x[1], max_data=x[2], min_weight=least, max_weight=most,
            num_filter=filters, kernel=(3, 3), pad=(1, 1), no_bias=True, name=name, **attrs,
        )  # fmt: skip

    def requantize(x: Any, name: str, low: float, high: float) -> Any:
        return S.contrib.requantize(
            x[0], x[1], x[2], min_calib_range=low, max_calib_range=high, out_type="auto", name=name
        )

    def pool(x: Any, name: str, **attrs: Any) -> Any:
        return S.contrib.quantized_pooling(x[0], x[1], x[2], name=name, **attrs)

    x = S.contrib.quantize_v2(
        S.Variable("data", shape=shape), min_calib_range=0.0, max_calib_range=1.0, out_type="auto", name="quantize"
    )
    x = requantize(conv(x, "c1", 16, 16), "r1", 0.0, 3.0)
    y = requantize(conv(x, "c2", 16, 16), "r2", -6.0, 6.0)
    z = requantize(conv(x, "c3", 16, 16), "r3", -4.0, 7.0)
    s = requantize(S.contrib.quantized_elemwise_add(y[0], z[0], y[1], y[2], z[1], z[2], name="add"), "r4", -9.0, 8.0)
    s = S.contrib.quantized_act(s[0], s[1], s[2], act_type="relu", name="act")
    a = pool(s, "max", kernel=(2, 2), stride=(2, 2), pool_type="max")
    b = pool(y, "avg", kernel=(2, 2), stride=(2, 2), pool_type="avg")
    j = S.contrib.quantized_concat(a[0], b[0], a[1], a[2], b[1], b[2], num_args=2, dim=1, name="concat")
    j = S.contrib.quantized_flatten(j[0], j[1], j[2], name="flatten")
    weight, bias = weights("fc_weight", 10, 32 * 16), weights("fc_bias", 10)
    (weight_min, weight_max), (bias_min, bias_max) = limits("fc_weight", 0.2), limits("fc_bias", 3.0)
    f = S.contrib.quantized_fully_connected(
        data=j[0], weight=weight, bias=bias, min_data=j[1], max_data=j[2], min_weight=weight_min,
        max_weight=weight_max, min_bias=bias_min, max_bias=bias_max, num_hidden=10, name="fc",
    )  # fmt: skip
    f = requantize(f, "r5", -60.0, 60.0)
    return S.contrib.dequantize(f[0], f[1], f[2], name="dequantize"), params, samples(rng, shape, 0.0, 1.0)


def samples(rng: Any, shape: tuple[int, ...], low: float, high: float) -> Any:
    """Random inputs, an input of the smallest value, one of the largest value, and one of values beyond both ends of
    the calibrated range."""
    random = rng.uniform(low, high, (SAMPLES - 3, *shape))
    wild = rng.choice([2 * low - high, 2 * high - low], shape)
    return np.stack([*random, np.full(shape, low), np.full(shape, high), wild]).astype(np.float32)


def write(folder: Path, name: str, symbol: Any, arg: Any, aux: Any, inputs: Any) -> None:
    mx.model.save_checkpoint(str(folder / name), 0, symbol, arg, aux)
    np.savez_compressed(folder / f"{name}.npz", inputs=inputs, outputs=answers(symbol, arg, aux, inputs))
    path = folder / f"{name}-symbol.json"
    path.write_text(json.dumps(json.loads(path.read_text()), separators=(",", ":")) + "\n")


def answers(symbol: Any, arg: Any, aux: Any, inputs: Any) -> Any:
    outputs = []
    for sample in inputs:
        known = {**arg, "data": mx.nd.array(sample), LABEL: mx.nd.zeros(len(sample))}
        args = {n: known[n] for n in symbol.list_arguments()}
        auxiliary = {n: aux[n] for n in symbol.list_auxiliary_states()}
        executor = symbol.bind(mx.cpu(), args=args, aux_states=auxiliary)
        outputs.append(executor.forward(is_train=False)[0].asnumpy())
    return np.stack(outputs)


def make_zoo(folder: Path, name: str) -> None:
    """A network of the gluon zoo with random weights, at its own image size."""
    from mxnet.gluon.model_zoo import vision

    size = 299 if name == "inceptionv3" else 224
    mx.random.seed(0)
    rng = np.random.RandomState(0)
    net = vision.get_model(name, pretrained=False)
    net.initialize(mx.init.MSRAPrelu())
    data = rng.uniform(-2.0, 2.0, (8, 3, size, size)).astype(np.float32)
    with mx.autograd.record(train_mode=True):  # so that the moving statistics are computed from this data
        for _ in range(24):
            net(mx.nd.array(data)).wait_to_read()
    net.hybridize()
    net(mx.nd.array(data[:1])).wait_to_read()
    net.export(str(folder / f"{name}.float"), epoch=0)
    symbol, arg, aux = mx.model.load_checkpoint(str(folder / f"{name}.float"), 0)
    symbol, arg, aux = quantized(symbol, arg, aux, data, 4, "channel-wise")
    write(folder, name, symbol, arg, aux, data[:4, None])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", default="", help="networks of the gluon zoo, with commas, in place of the fixtures")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.zoo:
        for name in given.zoo.split(","):
            make_zoo(given.folder, name)
        return
    for name in SUBGRAPH_MODELS:
        make_subgraph(given.folder, name)
    symbol, params, inputs = contrib_chain()
    write(given.folder, "contrib_chain", symbol, params, {}, inputs)


if __name__ == "__main__":
    main()
