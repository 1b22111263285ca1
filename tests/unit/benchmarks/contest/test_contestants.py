import pytest

from benchmarks.contest.contestants import CONTESTANTS, PEAK, contestants_for, contestants_named
from benchmarks.harness.frameworks import framework
from benchmarks.models.catalog import ROWS, ZOO, rows_named
from benchmarks.setup_peers import ENVIRONMENTS


def test_names_are_unique() -> None:
    for names in ([row.name for row in ROWS], [it.name for it in CONTESTANTS]):
        assert len(set(names)) == len(names)


def test_every_peer_has_an_environment() -> None:
    assert {it.environment for it in CONTESTANTS} <= {"octet", *(it.name for it in ENVIRONMENTS)}


@pytest.mark.parametrize("name", ["octet", "litert", "peak"])
def test_a_framework_of_this_environment_can_be_loaded(name: str) -> None:
    assert callable(framework(name).load)


def test_models_keep_the_catalogs_order() -> None:
    assert [row.name for row in rows_named(["resnet18", "resnet50"])] == ["resnet50", "resnet18"]
    assert rows_named([]) == list(ROWS)


def test_a_part_of_the_catalog_has_a_name() -> None:
    zoo = rows_named([ZOO])
    assert {row.name for row in zoo} >= {"bert_mini@128.ort-dynamic", "tf_efficientnet_lite0@224.nncf"}
    assert all(row.source == row.files["onnx"] and row.inputs == f"{row.source}.npz" for row in zoo)


def test_a_network_of_the_zoo_is_run_by_contestants_that_read_onnx() -> None:
    row, *_ = rows_named([ZOO])
    found = {it.name for it in contestants_for(row, CONTESTANTS)}
    assert found == {"peak", "octet-onnx", "onnxruntime", "openvino", "openvino-bf16"}


def test_a_network_of_mxnet_is_run_by_mxnet_and_octet() -> None:
    (row,) = rows_named(["resnet50_v1"])
    assert row.source == row.files["mxnet"]
    assert {it.name for it in contestants_for(row, CONTESTANTS)} == {"peak", "octet-mxnet", "mxnet", "mxnet-fp32"}


def test_the_error_for_an_unknown_name_lists_the_contestants() -> None:
    with pytest.raises(SystemExit, match=r"no such model: lenet; there are resnet50, "):
        rows_named(["lenet"])
    with pytest.raises(SystemExit, match=r"no such contestant: caffe; there are peak, "):
        contestants_named(["caffe"])


def test_the_peak_always_takes_part_and_slow_contestants_only_if_named() -> None:
    assert [it.name for it in contestants_named(["litert"])] == [PEAK, "litert"]
    assert not any(it.slow for it in contestants_named([]))
    assert [it.name for it in contestants_named(["tvm-fp32"])] == [PEAK, "tvm-fp32"]


def test_a_contestant_takes_part_if_it_has_a_file() -> None:
    (row,) = rows_named(["kws_ref_model"])
    found = {it.name for it in contestants_for(row, CONTESTANTS)}
    assert {"peak", "octet-xnnpack", "litert", "openvino-tflite"} <= found
    assert not found & {"onnxruntime", "torch", "onnxruntime-fp32"}
