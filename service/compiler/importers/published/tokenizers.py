"""The tokenizer of a model: `tokenizer.json`, or one that is built from the files of an older format.

BERT's `vocab.txt`, pairs of `vocab.json` and `merges.txt` (`byte_pairs`), and SentencePiece models (`unigrams`,
`sentencepiece_pairs`) define a tokenizer, together with the class in `tokenizer_config.json`. Other classes are
refused.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from service.compiler.importers.published.byte_pairs import build_clip, build_gpt2, build_roberta
from service.compiler.importers.published.configuration import CONFIG
from service.compiler.importers.published.files import Folder, parse_json
from service.compiler.importers.published.sentencepiece_pairs import FAMILIES as PAIR_FAMILIES
from service.compiler.importers.published.sentencepiece_pairs import build_pairs
from service.compiler.importers.published.special_tokens import add_special_tokens, special_tokens, tokenizer_settings
from service.compiler.importers.published.texts import TOKENIZER_CONFIG
from service.compiler.importers.published.tokenizer_settings import applied
from service.compiler.importers.published.unigrams import build_unigram
from service.core.errors import InvalidInput, OctetError, Unsupported
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.core.printable import printable

Build = Callable[[Any, Folder], Any]  # from the package `tokenizers` and a folder, a tokenizer

TOKENIZER = "tokenizer.json"
_SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")
_HOW = (
    "python -c \"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained('DIR').save_pretrained('DIR')\" "
    "writes it"
)


def read_tokenizer(folder: Folder) -> tuple[bytes, str]:
    """Returns the bytes of `tokenizer.json`, and the file that they come from; both are empty if the folder contains no
    tokenizer.

    Raises:
        InvalidInput: a file is too large, or not well formed.
        Unsupported: the folder contains a tokenizer in another format that cannot be converted exactly here.
    """
    if TOKENIZER in folder:
        data = folder.read(TOKENIZER, MAX_TOKENIZER_BYTES)
        return applied(data, check_tokenizer(data, TOKENIZER), folder), TOKENIZER
    for file in _SENTENCEPIECE:
        if file in folder:
            name = _class_of(folder, "")
            build = build_pairs if name in PAIR_FAMILIES else build_unigram
            return _built(folder, file, partial(build, file=file, class_name=name)), file
    for files, classes in _OLD_FORMATS:
        if all(name in folder for name in files):
            found = _class_of(folder, next(iter(classes)))
            if found not in classes:
                raise Unsupported(
                    f"the folder contains {files[0]} of {printable(found)}, but Octet reads tokenizer.json", hint=_HOW
                )
            return _built(folder, files[0], classes[found]), files[0]
    return b"", ""


def _class_of(folder: Folder, default: str) -> str:
    """Returns the class of transformers that reads the tokenizer, without the suffix `Fast`."""
    named = folder.json(TOKENIZER_CONFIG).get("tokenizer_class")
    if not isinstance(named, str):
        named = _CLASSES.get(str(folder.json(CONFIG).get("model_type")), default)
    return named.removesuffix("Fast")


def _built(folder: Folder, file: str, build: Build) -> bytes:
    """Returns the `tokenizer.json` of a tokenizer in an older format."""
    if importlib.util.find_spec("tokenizers") is None:
        raise Unsupported(
            f"{file} is converted by the package tokenizers, which is not installed", hint="pip install tokenizers"
        )
    try:
        text: str = build(import_module("tokenizers"), folder).to_str()
    except OctetError as error:
        error.hint = error.hint or _HOW
        raise
    except BaseException as error:  # a panic of Rust code is not an `Exception`
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise InvalidInput(f"{file} does not define a tokenizer: {error}", hint=_HOW) from error
    return text.encode()


def check_tokenizer(data: bytes, name: str) -> Mapping[str, Any]:
    """Returns the members of a `tokenizer.json`. Raises `InvalidInput` if the file is not one."""
    members = parse_json(data, name)
    if not isinstance(members, dict) or not isinstance(members.get("model"), dict):
        raise InvalidInput(f"{name} is not a file of the package tokenizers: it has no member model", hint=_HOW)
    return members


def _build_bert(package: Any, folder: Folder) -> Any:
    """Returns the tokenizer that transformers' BertTokenizerFast, or MPNetTokenizerFast, builds from `vocab.txt`."""
    settings = tokenizer_settings(folder)
    is_mpnet = str(settings.get("tokenizer_class")).startswith("MPNet")
    lines = folder.read("vocab.txt", MAX_TOKENIZER_BYTES).decode("utf-8", "replace").removesuffix("\n").split("\n")
    vocabulary = {line.rstrip("\r"): index for index, line in enumerate(lines)}
    names = special_tokens(settings, _MPNET_TOKENS if is_mpnet else _BERT_TOKENS, vocabulary)
    tokenizer = package.Tokenizer(package.models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    tokenizer.normalizer = package.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = package.pre_tokenizers.BertPreTokenizer()
    first, last = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = package.processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])],
    )
    tokenizer.decoder = package.decoders.WordPiece(prefix="##")
    if is_mpnet:
        pairs = (last, vocabulary[last]), (first, vocabulary[first])
        tokenizer.post_processor = package.processors.RobertaProcessing(
            *pairs, trim_offsets=True, add_prefix_space=False
        )
    add_special_tokens(package, tokenizer, names, strips=is_mpnet)
    return tokenizer


_BERT_TOKENS: Mapping[str, str] = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_MPNET_TOKENS: Mapping[str, str] = {
    "unk_token": "[UNK]",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
_BERTS = (
    "BertTokenizer",
    "ConvBertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "LayoutLMTokenizer",
    "MobileBertTokenizer",
    "MPNetTokenizer",
    "SqueezeBertTokenizer",
)
_ROBERTAS = ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer")
# The files of an older format, with the classes of transformers that read them; the first class is the default.
_OLD_FORMATS: Sequence[tuple[tuple[str, ...], Mapping[str, Build]]] = (
    (("vocab.txt",), dict.fromkeys(_BERTS, _build_bert)),
    (
        ("vocab.json", "merges.txt"),
        {**dict.fromkeys(_ROBERTAS, build_roberta), "GPT2Tokenizer": build_gpt2, "CLIPTokenizer": build_clip},
    ),
)
# The class of models whose settings do not name one, by `model_type` in config.json.
_CLASSES: Mapping[str, str] = {
    "gpt2": "GPT2Tokenizer",
    "clip": "CLIPTokenizer",
    "clip_text_model": "CLIPTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "xlm-roberta-xl": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer",
    "t5": "T5Tokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "xlnet": "XLNetTokenizer",
    "llama": "LlamaTokenizer",
    "mistral": "LlamaTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
}
