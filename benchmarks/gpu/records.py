"""The results of the parts of a run, and the section of the page that shows them.

Each result is an object in one line of JSON; its member `part` is the name of the part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness.tables import table

Record = Mapping[str, Any]
DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


def text(records: Sequence[Record], about: Mapping[str, Any], day: str) -> str:
    """Returns the page's section: wrong results, failures, then tables."""
    found = {part: [each for each in records if each["part"] == part] for part in _PARTS}
    parts = [*_loud(found, about), _heading(found, about, day), *_kernels(found, about)]
    parts += [*([_layers(found, about)] if about["layers"] else []), _models(found, about)]
    parts += [_serving(found["serving"])] if found["serving"] else []
    parts += ["\n".join(f"- {each['of']}: {each['said']}" for each in found["failure"])] if found["failure"] else []
    return "\n\n".join(parts)


_MOST_NAMED = 20  # number of wrong launches that are named; the results contain a line for each
_PARTS = ("card", "kernel", "kernels", "layer", "model", "right", "peak", "peer", "serving", "sanitizer", "failure")


def wrong(records: Sequence[Record], about: Mapping[str, Any]) -> list[str]:
    """Lists everything that gave a wrong result or no result."""
    right = {each["name"] for each in records if each["part"] == "right" and each["right"]}
    models = [each["name"] for each in about["models"] if each["name"] not in right]
    served = [f"{each['model']} over {each['protocol']}" for each in records if each.get("wrong")]
    layers = [each["name"] for each in about["layers"] if not _is_right(each["name"], records)]
    kernels = [f"{each['kernel']} of {each['test']}" for each in records if each["part"] == "kernel"][:_MOST_NAMED]
    counted = [each for each in records if each["part"] == "kernels"]
    unknown = about["kernels"]["count"] - sum(each["equal"] + each["different"] for each in counted)
    kernels += [f"{unknown} launches of kernels' tests that were not made"] if unknown else []
    return (
        kernels
        + layers
        + models
        + served
        + [f"{each['tool']} of {each['name']}" for each in records if each.get("found")]
    )


def _is_right(name: str, records: Sequence[Record]) -> bool:
    """Returns true if a layer was checked and always gave the right result."""
    answers = [
        each["right"] for each in records if each["part"] == "layer" and each["name"] == name and "right" in each
    ]
    return bool(answers) and all(answers)


def _loud(found: Mapping[str, Sequence[Record]], about: Mapping[str, Any]) -> Iterator[str]:
    everything = [each for part in found.values() for each in part]
    bad = wrong(everything, about)
    if bad:
        yield f"**WRONG, OR NOT ANSWERED: {', '.join(bad)}. Figures of what answers wrongly mean nothing.**"


def _heading(found: Mapping[str, Sequence[Record]], about: Mapping[str, Any], day: str) -> str:
    gpu = found["card"][0]["described"] if found["card"] else "an unnamed card"
    peaks = ", ".join(f"{name} {2 * value / 1e12:.4g} TOPS" for name, value in _peaks(found).items())
    looked = ", ".join(
        f"{each['tool']} {'FOUND ERRORS' if each['found'] else 'found nothing'} in {each['name']}"
        for each in found["sanitizer"]
    )
    torch = {f"; PyTorch {each['torch']}" for each in found["peer"]}
    facts = f"On {gpu}, {day}, {about['target']}; measured peaks: {peaks or 'none'}{''.join(torch)}."
    return f"{facts} compute-sanitizer: {looked}." if looked else f"{facts} compute-sanitizer looked at nothing."


def _peaks(found: Mapping[str, Sequence[Record]]) -> dict[str, float]:
    """Returns multiply-accumulates per second by instruction, the best of the measurements."""
    best: dict[str, float] = {}
    for each in found["peak"]:
        best[each["instruction"]] = max(best.get(each["instruction"], 0.0), each["macs_per_s"])
    return best


def _kernels(found: Mapping[str, Sequence[Record]], about: Mapping[str, Any]) -> Iterator[str]:
    """Yields the number of launches of the kernels' tests that gave the emulation's bytes, and a line for each launch
    that did not."""
    kept = about["kernels"]
    for each in found["kernels"]:
        left = f"; {kept['others']} more had no room in the package" if kept["others"] else ""
        newer = f"; {kept['newer']} take a newer card or more shared memory" if kept["newer"] else ""
        equal = f"{each['equal']} of {each['of']} equal the emulation's bytes"
        yield f"Launches of the kernels' tests: {equal}{left}{newer}."
    if found["kernel"]:
        yield "\n".join(f"- {each['kernel']} of {each['test']}: {each['said']}" for each in found["kernel"])


def _layers(found: Mapping[str, Sequence[Record]], about: Mapping[str, Any]) -> str:
    """Returns the table of single convolutions, compared with the peak of the instruction that each uses."""
    everything, peaks = [each for part in found.values() for each in part], _peaks(found)
    times = {each["name"]: each["card_s"] for each in found["layer"] if "card_s" in each}
    columns = ["convolution", "batch", "instruction", "tile", "right", "on the card, ms", "TOPS", "% of its peak"]
    rows = []
    for layer in about["layers"]:
        answered = any(each["name"] == layer["name"] for each in found["layer"])
        right = ("yes" if _is_right(layer["name"], everything) else "**NO**") if answered else "-"
        seconds, peak = times.get(layer["name"]), peaks.get(layer["instruction"])
        tops = f"{2 * layer['macs'] / seconds / 1e12:.4g}" if seconds else "-"
        share = f"{100 * layer['macs'] / seconds / peak:.0f}" if seconds and peak else "-"
        described = [layer["shape"], str(layer["batch"]), layer["instruction"], layer["tile"]]
        rows.append([*described, right, _ms(seconds), tops, share])
    return table(columns, rows)


def _models(found: Mapping[str, Sequence[Record]], about: Mapping[str, Any]) -> str:
    measured = {each["name"]: each for each in found["model"]}
    right = {each["name"]: each["right"] for each in found["right"]}
    peers: dict[tuple[str, int, str], float] = {}
    for each in found["peer"]:
        key = each["network"], each["batch"], each["dtype"]
        peers[key] = min(peers.get(key, each["median_s"]), each["median_s"])
    peak = max(_peaks(found).values(), default=0.0)
    columns = ["model", "batch", "CPU's bytes", "with copies, ms", "on the card, ms", "images/s", "% of peak"]
    columns += [*(f"PyTorch {name}, ms" for name in DTYPES.values()), "bf16 / ours"]
    rows = []
    for model in about["models"]:
        row, is_right = measured.get(model["name"]), right.get(model["name"])
        peer = [peers.get((model["network"], model["batch"], dtype)) for dtype in DTYPES]
        cells = [model["model"], str(model["batch"]), "-" if is_right is None else "yes" if is_right else "**NO**"]
        if row is None:
            cells += ["-"] * 4
        else:
            card_s = row["card_s"]
            share = f"{100 * model['macs'] / card_s / peak:.0f}" if peak else "-"
            cells += [_ms(row["whole_s"]), _ms(card_s), f"{model['batch'] / card_s:,.0f}", share]
        ratio = f"{peer[0] / row['card_s']:.2f}" if row and peer[0] else "-"
        rows.append([*cells, *map(_ms, peer), ratio])
    return table(columns, rows)


def _serving(served: Sequence[Record]) -> str:
    columns = ["model", "protocol", "clients", "images/s", "p50, ms", "p99, ms", "refused or lost"]
    rows = [
        [
            *(each["model"], each["protocol"], str(each["clients"]), f"{each['per_s']:,.0f}"),
            *(f"{each['p50_ms']:.2f}", f"{each['p99_ms']:.2f}", str(each["others"])),
        ]
        for each in served
    ]
    return table(columns, rows)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3f}"
