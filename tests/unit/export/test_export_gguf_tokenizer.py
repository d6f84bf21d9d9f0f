"""Tokenizers in GGUF files: read by llama.cpp as by the checkpoint, or refused."""

import json

import pytest
import tiny_tokenizers
from tiny_models import tiny_checkpoint
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

from edgedec.errors import ExportError
from edgedec.export import sample
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.gguf import pretokenizers
from edgedec.export.gguf.known import architecture_for
from edgedec.export.gguf.metadata import model_keys
from edgedec.export.gguf.pretokenizers import PROBE, name_for
from edgedec.export.gguf.tokenizer import tokenizer_keys
from edgedec.export.gguf.writing import write
from edgedec.export.tokenizer import TokenizerContent
from edgedec.gguf.presplit import PRESPLITS

# It imports llama_cpp, which is an extra.
evaluator = pytest.importorskip("edgedec.export.gguf.evaluator")
KINDS = pytest.importorskip("gguf").TokenType
ROWS = 700
LINES = [sample.TEXT, *PROBE.split("\n"), PROBE]
# As published tokenizers write them, which need not be how llama.cpp does.
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def split(*expressions):
    splits = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    return pre_tokenizers.Sequence([*splits, BYTES])


PUBLISHED = {
    ("gpt-2", False): GPT2,
    ("smollm", False): pre_tokenizers.Sequence([pre_tokenizers.Digits(True), GPT2]),
    ("qwen2", False): split(
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    ("llama-bpe", True): split(
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # As the tokenizers of OLMo 2 and of GPT-4 have it.
    ("dbrx", False): split(
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    ("seed-coder", False): split(
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    ("ufakzeka", False): split(
        r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    ("deepseek-v3", False): split(
        r"\p{N}{1,3}",
        r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    ("falcon", False): pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[\p{P}\$\+<=>\^~\|`]+"), "isolated"),
            GPT2,
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    ("tekken", True): split(
        r"[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "*"
        + LOWER
        + r"+|[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "+"
        + LOWER
        + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    ("gpt-4o", False): split(
        r"[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "*"
        + LOWER
        + "+"
        + CONTRACTIONS
        + r"?|[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "+"
        + LOWER
        + "*"
        + CONTRACTIONS
        + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def trained(pre_tokenizer, keeps_whole=False):
    """A byte-level tokenizer whose merges reach across words, so that every cut is seen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = BYTES
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ROWS,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = PROBE.split("\n")
    pieces = [line[i : i + n] for line in lines for n in (3, 5) for i in range(0, len(line), 2)]
    tokenizer.train_from_iterator(pieces, trainer)
    tokenizer.pre_tokenizer = pre_tokenizer
    raw = json.loads(tokenizer.to_str())
    raw["model"]["ignore_merges"] = keeps_whole
    return Tokenizer.from_str(json.dumps(raw))


def llama_ids(tokenizer, folder, texts, keys=None):
    """What llama.cpp reads with this tokenizer, from a file that holds it."""
    tiny_checkpoint(folder / "m", vocab_size=ROWS)
    tiny_tokenizers.save(tokenizer, folder / "m")
    opened = Checkpoint.open(folder / "m")
    architecture = architecture_for(opened.spec)
    metadata = {
        **model_keys(opened.spec, architecture),
        **tokenizer_keys(opened, TokenizerContent(opened.path), ROWS),
        **(keys or {}),
    }
    file = folder / "model.gguf"
    write(file, opened.spec, opened.tensors, architecture, metadata, "f32")
    return evaluator.run({"file": str(file), "tokens": [], "texts": texts})["ids"]


def agreeing(tokenizer, folder, texts, keys=None):
    """The texts that both read alike."""
    read = llama_ids(tokenizer, folder, texts, keys)
    return [
        text
        for text, ids in zip(texts, read, strict=True)
        if ids == tokenizer.encode(text, add_special_tokens=False).ids
    ]


@pytest.mark.parametrize(("name", "whole"), sorted(PUBLISHED))
def test_recognised_by_what_it_does(name, whole):
    assert name_for(trained(PUBLISHED[name, whole], whole), whole) == name


def test_every_name_is_recognised():
    assert {name for name, _ in PUBLISHED} == set(pretokenizers._NAMES)


def test_a_wrong_entry_of_the_table_is_noticed(monkeypatch):
    """The control: with another name's expressions a published tokenizer is not recognised."""
    pretokenizers._known_cuts.cache_clear()
    wrong = {**PRESPLITS, "qwen2": PRESPLITS["gpt-2"]}
    monkeypatch.setattr(pretokenizers, "PRESPLITS", wrong)
    try:
        with pytest.raises(ExportError, match="does not have this"):
            name_for(trained(PUBLISHED["qwen2", False]), False)
    finally:
        pretokenizers._known_cuts.cache_clear()


@pytest.mark.parametrize(("name", "whole"), sorted(PUBLISHED))
def test_llama_cpp_reads_as_the_tokenizer_does(name, whole, tmp_path):
    tokenizer = trained(PUBLISHED[name, whole], whole)
    same = agreeing(tokenizer, tmp_path, LINES)
    assert {line for line in LINES if line.isascii()} <= set(same)
    # llama.cpp approximates these two where letters beyond ASCII have cases.
    if name not in ("tekken", "gpt-4o"):
        assert same == LINES


def test_another_name_reads_otherwise(tmp_path):
    """The control: a wrong name is seen on the probe."""
    tokenizer = trained(PUBLISHED["qwen2", False])
    keys = {"tokenizer.ggml.pre": "gpt-2"}
    assert len(agreeing(tokenizer, tmp_path, LINES, keys)) < len(LINES) - 5


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        split(r"\p{L}+|\p{N}{2}|[^\p{L}\p{N}]"),
        pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), BYTES]),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        BYTES,
    ],
    ids=["pairs of digits", "white space lost", "space in front", "nothing cut"],
)
def test_a_way_without_a_name_is_refused(pre_tokenizer):
    with pytest.raises(ExportError, match="does not have this tokenizer's pre-tokenizer"):
        name_for(trained(pre_tokenizer), False)


def test_a_kept_word_has_names_of_its_own():
    with pytest.raises(ExportError, match="does not have this"):
        name_for(trained(PUBLISHED["qwen2", False], True), True)


def test_scores_are_the_order_of_merges(tmp_path):
    """The control: with scores upside down text is read otherwise."""
    tokenizer = tiny_tokenizers.llama()
    tiny_checkpoint(tmp_path / "k", vocab_size=ROWS)
    opened = Checkpoint.open(tiny_tokenizers.save(tokenizer, tmp_path / "k"))
    found = tokenizer_keys(opened, TokenizerContent(opened.path), ROWS)
    turned = {"tokenizer.ggml.scores": [-s for s in found["tokenizer.ggml.scores"]]}
    texts = [*tiny_tokenizers.CORPUS, "quick brown function return left right"]
    assert agreeing(tokenizer, tmp_path, texts) == texts
    assert agreeing(tokenizer, tmp_path, texts, turned) != texts


def test_kinds_and_settings(tmp_path):
    opened = Checkpoint.open(tiny_checkpoint(tmp_path / "m", vocab_size=410))
    tiny_tokenizers.save(tiny_tokenizers.llama(), opened.path)
    (opened.path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>"})
    )
    keys = tokenizer_keys(opened, TokenizerContent(opened.path), 410)
    kinds = keys["tokenizer.ggml.token_type"]
    assert kinds[:3] == [KINDS.UNKNOWN, KINDS.CONTROL, KINDS.CONTROL]
    assert kinds[3:259] == [KINDS.BYTE] * 256
    assert kinds[400:] == [KINDS.UNUSED] * 10
    assert keys["tokenizer.ggml.tokens"][400] == "[PAD400]"
    assert keys["tokenizer.ggml.bos_token_id"] == 1
    assert keys["tokenizer.ggml.unknown_token_id"] == 0
    assert keys["tokenizer.ggml.add_bos_token"] is True
    assert keys["tokenizer.ggml.add_eos_token"] is False
    assert keys["tokenizer.ggml.add_space_prefix"] is True
    # config.json's end of text comes first, the tokenizer's own after it.
    assert keys["tokenizer.ggml.eos_token_id"] == 0
    assert keys["tokenizer.ggml.eot_token_id"] == 2


def test_what_is_put_around_a_text_is_seen_without_a_name_for_it(tmp_path):
    """The file's post-processor says what begins a text, whatever stands beside it."""
    opened = Checkpoint.open(tiny_checkpoint(tmp_path / "m", vocab_size=410))
    tokenizer = tiny_tokenizers.llama()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tiny_tokenizers.save(tokenizer, opened.path)
    keys = tokenizer_keys(opened, TokenizerContent(opened.path), 410)
    assert keys["tokenizer.ggml.bos_token_id"] == 1
    assert keys["tokenizer.ggml.eos_token_id"] == 2
    assert keys["tokenizer.ggml.add_bos_token"] is keys["tokenizer.ggml.add_eos_token"] is True


def test_added_tokens_of_both_kinds(tmp_path):
    opened = Checkpoint.open(tiny_checkpoint(tmp_path / "m"))
    content = TokenizerContent(opened.path)
    keys = tokenizer_keys(opened, content, 352)
    kinds = dict(zip(keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"], strict=True))
    assert kinds["<|end|>"] == KINDS.CONTROL
    assert kinds["<think> 思"] == kinds["    "] == KINDS.USER_DEFINED
    assert kinds["[PAD351]"] == KINDS.UNUSED
    texts = ["if x:\n    y\n        z", "a <think> 思 b"]
    assert agreeing(tiny_tokenizers.byte_level(), tmp_path / "n", texts) == texts
