"""Trains the models of tests/fixtures/texts on the texts of Django's source distribution, and writes what transformers
answers with them:

    pip download --no-deps --no-binary :all: django==5.2 && tar xf Django-5.2.tar.gz
    ZOO/bin/python -m scripts.make_text_fixtures Django-5.2

Each model is a BERT with two layers, which is trained in about a minute and quantized by ONNX Runtime:

- `language` classifies the language of a sentence (the translations of Django);
- `entities` finds the names of classes, functions, modules and settings in a sentence (the roles in the documentation);
- `ranker` scores the name of a language and a sentence; it begins with the layers of `language`.

The answers are those of ONNX Runtime with the quantized file, after transformers' own tokenizer and pipelines.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import onnxruntime
import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]
from onnxruntime.quantization import QuantType, quantize_dynamic
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "texts"
LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "pl", "pt", "sv", "tr")
NAMES = ("English", "German", "Spanish", "French", "Italian", "Dutch", "Polish", "Portuguese", "Swedish", "Turkish")
ENTITIES: dict[str, str] = {"class": "CLASS", "func": "FUNCTION", "meth": "FUNCTION", "mod": "MODULE"} | {
    "setting": "SETTING"
}
LABELS = ("O", *(f"{prefix}-{name}" for name in dict.fromkeys(ENTITIES.values()) for prefix in "BI"))
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENS, BATCH, CHECKED = 64, 32, 24
_ROLE = re.compile(r":(?:\w+:)*(\w+):`([^`]*)`")
_PAIR = re.compile(r'^msgid (".*?)\nmsgstr (".*?)\n\n', re.MULTILINE | re.DOTALL)

Example = tuple[Any, Any]  # a text or a pair, and its label, or its spans with labels


def languages(django: Path) -> Iterator[Example]:
    """Yields sentences with the index of their language."""
    for language in LANGUAGES[1:]:
        for file in sorted((django / "django").glob(f"**/locale/{language}/LC_MESSAGES/django.po")):
            for english, other in _PAIR.findall(file.read_text()):
                for text, name in ((english, "en"), (other, language)):
                    text = "".join(json.loads(line) for line in text.split("\n") if line.startswith('"'))
                    text = " ".join(re.sub(r"%\(\w+\)s|%\w|[{}<>#]|&\w+;", " ", text).split())
                    if 20 <= len(text) <= 160 and (name != "en" or language == "de"):
                        yield text, LANGUAGES.index(name)


def entities(django: Path) -> Iterator[Example]:
    """Yields sentences with their spans: begin, end and name."""
    for paragraph in _paragraphs(django):
        for sentence in re.split(r"(?<=[.:])\s", re.sub(r"``([^`]*)``", r"\1", paragraph)):
            text, spans, before = "", list[tuple[int, int, str]](), 0
            for role in _ROLE.finditer(sentence):
                text += sentence[before : role.start()]
                shown = role[2].split(" <")[0]
                shown = shown.rpartition(".")[2] if shown.startswith("~") else shown.lstrip(".!")
                if role[1] in ENTITIES and " " not in shown:
                    spans.append((len(text), len(text) + len(shown), ENTITIES[role[1]]))
                text, before = text + shown, role.end()
            text += sentence[before:]
            if spans and 20 <= len(text) <= 200 and "`" not in text:
                yield text, spans


def requests(django: Path) -> Iterator[Example]:
    """Yields pairs of a request for a language and a sentence, with 1 if the sentence is in that language."""
    rng = random.Random(0)
    for text, index in languages(django):
        other = rng.choice([each for each in range(len(LANGUAGES)) if each != index])
        for asked, label in ((index, 1.0), (other, 0.0)):
            yield (NAMES[asked], text), [label]


def _paragraphs(django: Path) -> Iterator[str]:
    for file in sorted((django / "docs").glob("**/*.txt")):
        if "releases" not in file.parts:
            for block in file.read_text().split("\n\n"):
                if re.match(r"[A-Z]", block) and not re.search(r"^([=~^-])\1{3,}$", block, re.MULTILINE):
                    yield " ".join(block.split())


def trained_tokenizer(texts: Sequence[str], size: int) -> Any:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIAL), show_progress=False)
    )
    ends = [(each, tokenizer.token_to_id(each)) for each in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=TOKENS, clean_up_tokenization_spaces=False, **names
    )


def encode(tokenizer: Any, batch: Sequence[Example], is_tagger: bool) -> tuple[Any, torch.Tensor]:
    texts = [text for text, _ in batch]
    options = {"truncation": True, "padding": True, "return_tensors": "pt"}
    if isinstance(texts[0], tuple):
        firsts, seconds = zip(*texts, strict=True)
        found = tokenizer(list(firsts), list(seconds), **options)
    else:
        found = tokenizer(texts, return_offsets_mapping=is_tagger, **options)
    if not is_tagger:
        return found, torch.tensor([label for _, label in batch])
    targets = []
    for offsets, (_, spans) in zip(found.pop("offset_mapping").tolist(), batch, strict=True):
        row = [-100 if begin == end else 0 for begin, end in offsets]
        for first, last, name in spans:
            inside = [at for at, (begin, end) in enumerate(offsets) if first <= begin < end <= last]
            for at in inside:
                row[at] = LABELS.index(f"{'B' if at == inside[0] else 'I'}-{name}")
        targets.append(row)
    return found, torch.tensor(targets)


def train(model: Any, tokenizer: Any, examples: Sequence[Example], steps: int, rate: float, is_tagger: bool) -> None:
    rng = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    model.train()
    for step in range(steps):
        inputs, targets = encode(tokenizer, rng.sample(examples, BATCH), is_tagger)
        loss = model(**inputs, labels=targets).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 200 == 0:
            print(f"  step {step}: loss {loss.item():.3f}", flush=True)
    model.eval()


def export(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes the folder of a published model, as Optimum does."""
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tokenizer("the fox", "the fox", return_tensors="pt")

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = model

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            return self.network(input_ids=ids, attention_mask=mask, token_type_ids=types).logits

    tokens = {0: "batch", 1: "tokens"}
    is_tagger = type(model).__name__.endswith("TokenClassification")
    axes = {**dict.fromkeys(names, tokens), "logits": tokens if is_tagger else {0: "batch"}}
    (folder / "onnx").mkdir()
    whole, quantized = folder / "whole.onnx", folder / "onnx" / "model_quantized.onnx"
    torch.onnx.export(
        Network(), tuple(example[name] for name in names), str(whole), input_names=names, output_names=["logits"],
        dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip
    quantize_dynamic(str(whole), str(quantized), weight_type=QuantType.QInt8)
    whole.unlink()
    tokenizer.save_pretrained(folder)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)


def quantized_model(model: Any, folder: Path) -> Any:
    """Returns `model`, which from now on computes its outputs with the exported file."""
    session = onnxruntime.InferenceSession(folder / "onnx" / "model_quantized.onnx", providers=["CPUExecutionProvider"])

    def forward(**inputs: Any) -> Any:
        names = [each.name for each in session.get_inputs()]
        (logits,) = session.run(None, {name: inputs[name].numpy() for name in names})
        return transformers.modeling_outputs.SequenceClassifierOutput(logits=torch.from_numpy(logits))

    model.forward = forward
    return model


def answers(task: str, model: Any, tokenizer: Any, checked: Sequence[Example]) -> list[Any]:
    """Returns the answers of transformers' pipelines, one text at a time."""
    texts = [text for text, _ in checked]
    if task == "ranker":
        scores = [
            torch.sigmoid(model(**tokenizer(*text, truncation=True, return_tensors="pt")).logits) for text in texts
        ]
        return [
            {"query": query, "document": document, "score": score.item()}
            for (query, document), score in zip(texts, scores, strict=True)
        ]
    if task == "language":
        pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
        return [{"text": text, "classes": pipe([text], truncation=True)[0]} for text in texts]
    pipe = transformers.pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple"
    )
    names = {"entity_group": "label", "score": "score", "start": "start", "end": "end"}
    return [
        {"text": text, "spans": [{to: _number(each[name]) for name, to in names.items()} for each in pipe(text)]}
        for text in texts
    ]


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def accuracy(task: str, found: Sequence[Any], checked: Sequence[Example]) -> float:
    """Returns the share of right answers."""
    if task == "language":
        return float(
            np.mean(
                [
                    max(each["classes"], key=lambda one: one["score"])["label"] == LANGUAGES[label]
                    for each, (_, label) in zip(found, checked, strict=True)
                ]
            )
        )
    if task == "ranker":
        right = [(each["score"] > 0.5) == bool(label[0]) for each, (_, label) in zip(found, checked, strict=True)]
        return float(np.mean(right))
    of = [{(span["start"], span["end"], span["label"]) for span in each["spans"]} for each in found]
    hits = sum(len(mine & set(spans)) for mine, (_, spans) in zip(of, checked, strict=True))
    return 2 * hits / (sum(map(len, of)) + sum(len(spans) for _, spans in checked))


def _named(labels: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {name: index for index, name in enumerate(labels)}}


TASKS: dict[str, tuple[Callable[[Path], Iterator[Example]], str, dict[str, Any], int]] = {
    "language": (languages, "BertForSequenceClassification", _named(LANGUAGES), 800),
    "entities": (entities, "BertForTokenClassification", _named(LABELS), 1200),
    "ranker": (
        requests,
        "BertForSequenceClassification",
        {"num_labels": 1, "problem_type": "multi_label_classification"},
        1200,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("django", type=Path)
    parser.add_argument("--only", nargs="*", choices=TASKS, default=list(TASKS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    begun: tuple[Any, Any] | None = None
    for task in arguments.only:
        read, architecture, labels, steps = TASKS[task]
        found = make(
            task, list(read(arguments.django)), architecture, labels, steps, begun if task == "ranker" else None
        )
        begun = found if task == "language" else begun


def make(
    task: str,
    examples: list[Example],
    architecture: str,
    labels: dict[str, Any],
    steps: int,
    begun: tuple[Any, Any] | None,
) -> tuple[Any, Any]:
    """Returns the trained layers and the tokenizer, with which another model may begin."""
    torch.manual_seed(0)
    random.Random(0).shuffle(examples)
    size = max(CHECKED, len(examples) // 20)
    checked, used = examples[:size], examples[size:]
    texts = [each for text, _ in used for each in (text if isinstance(text, tuple) else (text,))]
    tokenizer = begun[1] if begun else trained_tokenizer(texts, 600)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=TOKENS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation="eager", **labels,
    )  # fmt: skip
    model = getattr(transformers, architecture)(config)
    if begun:
        model.bert.load_state_dict(begun[0])
    print(f"{task}: {len(used)} examples", flush=True)
    train(model, tokenizer, used, steps, 1e-3 if begun else 2e-3, architecture == "BertForTokenClassification")
    trained = {name: value.clone() for name, value in model.bert.state_dict().items()}
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        export(model, tokenizer, folder)
        quantized = quantized_model(model, folder)
        found = answers(task, quantized, tokenizer, checked)
        print(f"{task}: {accuracy(task, found, checked):.1%} of {len(checked)} unseen texts", flush=True)
        (folder / "answers.json").write_text(json.dumps(found[:CHECKED], ensure_ascii=False, indent=1))
        with ZipFile(FOLDER / f"{task}.zip", "w", ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(each for each in folder.rglob("*") if each.is_file()):
                archive.writestr(ZipInfo(str(file.relative_to(folder))), file.read_bytes(), ZIP_DEFLATED, 9)
    return trained, tokenizer


if __name__ == "__main__":
    main()
