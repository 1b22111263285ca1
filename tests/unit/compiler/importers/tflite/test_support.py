"""The error lists every operator that cannot be compiled by name, with a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from service.compiler.importers.facts import facts_of
from service.compiler.importers.tflite import import_model
from service.compiler.importers.tflite.operators import RULES
from service.core.errors import DynamicRange, MalformedModel, Unsupported, UnsupportedOperator
from tests.support.tflite_builder import ModelBuilder, Quant, serialize

UNIT = Quant(1.0)


def chain(
    names: list[str],
    dtype: npt.DTypeLike = np.int8,
    quant: Quant | None = UNIT,
    builder: ModelBuilder | None = None,
) -> bytes:
    """Returns a sequence of operators with the given names, on tensors t0, t1, …"""
    builder = builder or ModelBuilder()
    tensors = [builder.tensor(f"t{i}", (1, 4), dtype, quant) for i in range(len(names) + 1)]
    for i, name in enumerate(names):
        builder.operator(name, [tensors[i]], [tensors[i + 1]])
    return builder.build([tensors[0]], [tensors[-1]])


def refused(data: bytes) -> UnsupportedOperator:
    with pytest.raises(UnsupportedOperator) as caught:
        import_model(data)
    return caught.value


def test_every_unsupported_operator_is_named_with_its_tensor() -> None:
    error = refused(chain(["RELU", "MULTINOMIAL", "RELU", "SKIP_GRAM", "MULTINOMIAL"]))
    assert error.message == (
        "3 of 5 operators cannot be compiled: MULTINOMIAL (2 times), SKIP_GRAM; the first is MULTINOMIAL #1 → t2"
    )
    assert (error.stage, error.op, error.tensor) == ("import", "MULTINOMIAL #1", "t2")
    assert error.hint == "convert the model without them, or cut it at: t1, t3"


def test_the_message_stays_short_for_many_operators() -> None:
    error = refused(chain(["MULTINOMIAL"] * 500))
    assert "MULTINOMIAL (500 times); the first is MULTINOMIAL #0" in error.message
    assert len(error.message) < 1000


def test_the_message_stays_short_for_long_names() -> None:
    builder = ModelBuilder()
    chain(["MULTINOMIAL"], builder=builder)
    builder.graph.tensors[1].name = "n" * 1_000_000
    error = refused(serialize(builder.model))
    assert len(error.message) < 1000
    assert error.tensor is not None
    assert len(error.tensor) < 1000


def test_custom_operator_is_named() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,), np.int8, Quant(1.0)), builder.tensor("y", (1,), np.int8, Quant(1.0))
    builder.operator("CUSTOM", [x], [y])
    builder.build([x], [y])
    builder.model.operatorCodes[0].customCode = "TFLite_Detection_Something"
    error = refused(serialize(builder.model))
    assert error.op == "CUSTOM(TFLite_Detection_Something) #0"


def test_an_operator_of_tensorflow_is_named_with_its_remedy() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,), np.float32), builder.tensor("y", (1,), np.float32)
    builder.operator("CUSTOM", [x], [y])
    builder.build([x], [y])
    builder.model.operatorCodes[0].customCode = "FlexErf"
    error = refused(serialize(builder.model))
    assert error.op == "CUSTOM(FlexErf) #0"
    assert str(error.hint).startswith("convert it without tf.lite.OpsSet.SELECT_TF_OPS")


def test_a_hash_table_is_refused_by_name() -> None:
    error = refused(chain(["HASHTABLE_FIND"], np.int32, None))
    assert error.op == "HASHTABLE_FIND #0"
    assert "without its table" in str(error.hint)


def test_operator_newer_than_the_schema_is_named_by_its_number() -> None:
    builder = ModelBuilder()
    chain(["RELU"], builder=builder)
    builder.model.operatorCodes[0].builtinCode = 4711
    assert refused(serialize(builder.model)).op == "BUILTIN_4711 #0"


def test_a_float_model_is_compiled_with_a_notice_about_quantization() -> None:
    (notice,) = facts_of(import_model(chain(["RELU", "TANH"], np.float32, None))).notices
    assert notice.startswith("this model is float and not quantized: quantize it with octet quantize")


@pytest.mark.parametrize("names", [["TRANSPOSE", "BITWISE_XOR"], ["MULTINOMIAL"]])
def test_a_float_model_is_refused_for_its_unsupported_operators(names: list[str]) -> None:
    with pytest.raises(UnsupportedOperator, match=names[-1]):
        import_model(chain(names, np.float32, None))


@pytest.mark.parametrize(("name", "dtype"), [("BATCH_MATMUL", np.uint8), ("FULLY_CONNECTED", np.uint8)])
def test_an_unsupported_hybrid_kernel_is_refused(name: str, dtype: type) -> None:
    """LiteRT's kernels quantize the activations, so real arithmetic would give different results."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4), np.float32), builder.tensor("y", (1, 4), np.float32)
    weights = builder.constant("weights", np.ones((4, 4), dtype), Quant(0.5))
    builder.operator(name, [x, weights], [y], version=1)
    with pytest.raises(DynamicRange, match=f"and float32 activations \\(1 {name}\\)") as caught:
        import_model(builder.build([x], [y]))
    assert "representative_dataset" in str(caught.value.hint)
    assert caught.value.op == f"{name} #0"


def test_operator_left_in_float_is_named() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4), np.int8, Quant(1.0)), builder.tensor("y", (1, 4), np.float32)
    z = builder.tensor("z", (1, 4), np.float32)
    builder.operator("DEQUANTIZE", [x], [y])
    builder.operator("BITWISE_XOR", [y], [z])
    error = refused(builder.build([x], [z]))
    assert error.op == "BITWISE_XOR #1"
    assert error.hint is not None
    assert "no operator is left in float" in error.hint


def test_16_bit_operator_without_a_kernel_is_refused_by_name() -> None:
    error = refused(chain(["RELU", "HARD_SWISH"], np.int16))
    assert "HARD_SWISH on int16" in error.message
    assert error.hint is not None
    assert "quantize the activations to 8 bits" in error.hint


@pytest.mark.parametrize(("inputs", "outputs"), [([0, 0], [1]), ([], [1])])
def test_wrong_number_of_inputs_is_malformed(inputs: list[int], outputs: list[int]) -> None:
    builder = ModelBuilder()
    chain(["RELU"], builder=builder)
    builder.graph.operators[0].inputs = inputs
    with pytest.raises(MalformedModel, match=f"RELU #0 has {len(inputs)} inputs"):
        import_model(serialize(builder.model))


def test_operator_without_an_output_is_malformed() -> None:
    builder = ModelBuilder()
    chain(["RELU", "RELU"], builder=builder)
    builder.graph.operators[1].outputs = []
    builder.graph.outputs = [1]
    with pytest.raises(MalformedModel, match="RELU #1 has 0 outputs"):
        import_model(serialize(builder.model))


@pytest.mark.parametrize(
    ("shape", "message"), [([-2, 4], "the shape"), ([0, 4], "no elements"), ([1 << 16, 1 << 16], "2 GiB")]
)
def test_tensor_that_no_operator_can_use_is_named(shape: list[int], message: str) -> None:
    builder = ModelBuilder()
    chain(["RELU"], builder=builder)
    builder.graph.tensors[0].shape = shape
    with pytest.raises(Unsupported, match=message) as caught:
        import_model(serialize(builder.model))
    assert (caught.value.op, caught.value.tensor) == ("RELU #0", "t0")


def test_a_model_is_not_cut_at_its_inputs() -> None:
    assert refused(chain(["MULTINOMIAL", "RELU"])).hint == "convert the model without them"


def test_the_documentation_lists_the_16_bit_operators() -> None:
    page = (Path(__file__).parents[5] / "docs/how-to/tflite.md").read_text()
    (listed,) = re.findall(r"On int16, Octet compiles ([^.]*)\.", page)
    names = re.findall(r"\b[A-Z][A-Z0-9_]{2,}\b", listed)
    assert len(names) > 50
    assert [name for name in names if name not in RULES or not RULES[name].reads_dtype("int16")] == []


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["HARD_SWISH"], "quantize the activations to 8 bits: these operators cannot be compiled with 16-bit ones"),
        (["NEG"], "convert the model without them"),
        (["HARD_SWISH", "MULTINOMIAL"], "convert the model without them"),
    ],
)
def test_the_hint_for_int16_is_given_if_8_bits_can_be_compiled(names: list[str], hint: str) -> None:
    assert refused(chain(names, np.int16, Quant(1.0))).hint == hint
