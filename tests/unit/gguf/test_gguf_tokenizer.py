"""A GGUF's tokenizer gives llama.cpp's own ids, and its text back."""

import itertools
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
from example_counts import examples
from gguf_files import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import in_full

from edgedec.errors import BundleError
from edgedec.gguf.header import GgufHeader
from edgedec.gguf.presplit import PRESPLITS
from edgedec.gguf.tokenizer import load_tokenizer
from edgedec.text.tokenizer import Tokenizer

TEXTS = [
    "",
    " ",
    "Hello, world! I'm here; you'LL see 'S and x's",
    "def f(x):\n    return x  \n\n\n\ty = 12345678.9 # 1 22 333 4444\r\n\r\n",
    "   leading and   trailing   ",
    "naïve café Ärger ǅ ПРИВЕТ Привет aB Ab XMLHttp",
    "日本語、漢字カナ 한국어 中文\uff0c。123 हिन्दी ภาษาไทย",
    "😀👍🏽 👨‍👩‍👧 \u200d\ufe0f e\u0301",
    "a\u00a0b\u3000c\u2028d\u0085e\x0bf\x00g\x7f",
    "٣٤٥ ½ Ⅷ² 1/2 a/b\n/\n",
    "<|bos|>x<|im_end|> <think>  x</s> <s> <unk>",
    "sTr sTra \u4e2d\u3042\ud55c",
    "  1     x    y       z",
    " ".join(f"'s{char} 'd{char}" for char in gguf_files.ALPHABET),
    "$a+b=c<d>e^f~g|h`i_j-k.l,m",
]
texts = st.lists(
    st.sampled_from([*gguf_files.ALPHABET, "'s", "'Re", "  ", "<think>", "<|im_end|>"]), max_size=24
).map("".join)
# Characters that every table of Unicode from version 12 on knows alike.
any_text = st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=["Cs", "Cn"]))
many = settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# One name of every way to cut; the others share it.
CUTS = sorted({cut: name for name, cut in sorted(PRESPLITS.items())}.values())


def load(file: Path, metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(GgufHeader.read(gguf_files.write(file, metadata)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


ALL_PAIRS = ["".join(pair) for pair in itertools.product(gguf_files.ALPHABET, repeat=2)]


@pytest.mark.parametrize(
    "name", in_full([*CUTS, None, *sorted(PRESPLITS.keys() - set(CUTS))], len(CUTS) + 1)
)
def test_byte_pairs_as_llama_cpp(tmp_path: Path, name: str | None) -> None:
    file = tmp_path / "vocab.gguf"
    ours = load(file, gguf_files.byte_pairs(name))
    theirs = gguf_files.llama_tokenizer(file)
    chained = ["a".join(ALL_PAIRS[start : start + 59]) for start in range(0, len(ALL_PAIRS), 59)]
    for text in [*TEXTS, *chained]:
        assert ours.encode(text) == theirs(text), text


@pytest.mark.parametrize("name", CUTS)
def test_any_byte_pairs_as_llama_cpp(folder: Path, name: str) -> None:
    file = folder / f"{name}.gguf"
    ours = load(file, gguf_files.byte_pairs(name))
    theirs = gguf_files.llama_tokenizer(file)

    @many
    @given(text=texts | any_text)
    def same(text: str) -> None:
        assert ours.encode(text) == theirs(text)

    same()


def test_another_cut_is_noticed(folder: Path) -> None:
    """The texts above tell every two ways to cut apart: a wrong one cannot pass."""
    by_ids: dict[Any, list[str]] = {}
    for name in CUTS:
        tokenizer = load(folder / "cut.gguf", gguf_files.byte_pairs(name))
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in [*TEXTS, *ALL_PAIRS]]
        by_ids.setdefault(str(ids), []).append(name)
    # Only what is assumed of a BOS may differ beside it.
    cuts = [{PRESPLITS[name][:2] for name in names} for names in by_ids.values()]
    assert all(len(alike) == 1 for alike in cuts)


@pytest.mark.parametrize(
    "entries", [{}, {"add_space_prefix": False}, {"add_bos_token": False, "add_eos_token": True}]
)
def test_pieces_as_llama_cpp(tmp_path: Path, entries: dict[str, Any]) -> None:
    file = tmp_path / "vocab.gguf"
    ours = load(file, gguf_files.pieces(**entries))
    theirs = gguf_files.llama_tokenizer(file)

    @many
    @given(text=texts | any_text | st.text("defquick brown()\n xyz▁", max_size=60))
    def same(text: str) -> None:
        assert ours.encode(text) == theirs(text)

    same()
    for text in TEXTS:
        assert ours.encode(text) == theirs(text), text


@pytest.mark.parametrize("entries", [{}, {"add_bos_token": False}])
def test_merged_pieces_as_llama_cpp(tmp_path: Path, entries: dict[str, Any]) -> None:
    file = tmp_path / "vocab.gguf"
    ours = load(file, gguf_files.merged_pieces(**entries))
    theirs = gguf_files.llama_tokenizer(file)
    for text in [*TEXTS, "a\nb", "q\n\n\n\nfox", " \n \n", "\n" * 5, "the quick\nfox"]:
        assert ours.encode(text) == theirs(text), text
    across = load(file, gguf_files.pieces())  # merges may cross a line's end, BOS as the file says
    assert across.encode("q\n") != ours.encode("q\n")


@st.composite
def random_pieces(draw: st.DrawFn) -> dict[str, Any]:
    """Any pieces over four characters with any scores, no two alike."""
    letters = st.text("ab▁é", min_size=2, max_size=5)
    words = draw(st.lists(letters, unique=True, min_size=1, max_size=24))
    order = draw(st.permutations(range(len(words))))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *"ab▁é", *words]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (4 + len(words))]
    scores = [0.0] * 259 + [-100.0 - i for i in range(4)] + [-float(i) for i in order]
    return gguf_files.piece_vocabulary(tokens, types, scores)


def made_alike(tokens: list[str]) -> bool:
    """Whether two ways to make one token can overlap: then left before right decides."""
    return any(
        token[:cut] == token[-cut:] and len(token) > cut
        for token in tokens
        for cut in range(1, len(token))
    )


@given(metadata=random_pieces(), text=st.text("abé ", max_size=24))
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scores_stand_for_merges(folder: Path, metadata: dict[str, Any], text: str) -> None:
    tokens = metadata["tokenizer.ggml.tokens"][263:]
    file = folder / "random.gguf"
    ours = load(file, metadata)
    if not made_alike(tokens):
        assert ours.encode(text) == gguf_files.llama_tokenizer(file)(text)


def test_merges_by_length_are_other_merges(tmp_path: Path) -> None:
    """A twin that ranks by another order than the scores' is noticed by these texts."""
    good = gguf_files.pieces()
    wrong = {**good, "tokenizer.ggml.scores": -good["tokenizer.ggml.scores"]}
    one, other = load(tmp_path / "a.gguf", good), load(tmp_path / "b.gguf", wrong)
    assert any(one.encode(text) != other.encode(text) for text in TEXTS)


@pytest.mark.parametrize("metadata", [gguf_files.byte_pairs("qwen2"), gguf_files.pieces()],
                         ids=["byte-level", "pieces"])  # fmt: skip
def test_text_comes_back(tmp_path: Path, metadata: dict[str, Any]) -> None:
    tokenizer = load(tmp_path / "vocab.gguf", metadata)

    @many
    @given(text=texts | any_text)
    def same(text: str) -> None:
        ids = tokenizer.encode(text)
        stream = tokenizer.stream()
        special = tokenizer.token_id("<|im_end|>") in tokenizer.special_ids
        shown = text.replace("<|im_end|>", "") if special else text
        assert tokenizer.decode(ids) == shown
        assert "".join(map(stream.push, ids)) + stream.flush() == shown

    same()


def test_special_tokens(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    metadata = {**gguf_files.byte_pairs("llama-bpe"), "tokenizer.chat_template": template}
    tokenizer = load(tmp_path / "vocab.gguf", metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    bos, end = tokens.index("<|bos|>"), tokens.index("<|im_end|>")
    assert (tokenizer.bos_id, tokenizer.eos_id) == (bos, end)
    # Named as an end, so no text, though the file calls it normal; and thinking is text.
    assert tokenizer.special_ids == {bos, end}
    assert tokenizer.encode("a") == [bos, tokens.index("a")]
    ids = tokenizer.encode_chat([{"role": "user", "content": "a<think>"}])
    assert ids == [bos, tokens.index("a"), tokens.index("<think>"), end]
    assert tokenizer.decode(ids) == "a<think>"


NAMED = [
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "</s>",
    "<|tool_response>",
    "<fim_prefix>",
    "<|start|>",
]


@pytest.mark.parametrize("count", range(1, len(NAMED) + 1))
def test_tokens_known_by_name_as_llama_cpp(tmp_path: Path, count: int) -> None:
    """Whatever type a file gives them; some lose their meaning where others are there."""
    base = gguf_files.byte_pairs("gpt-2")
    tokens = [*base["tokenizer.ggml.tokens"], *NAMED[:count]]
    types = [*base["tokenizer.ggml.token_type"].tolist(), *[NORMAL] * count]
    merges = base["tokenizer.ggml.merges"]
    file = tmp_path / "vocab.gguf"
    ours = load(file, gguf_files.vocabulary("gpt2", tokens, types, merges=merges, pre="gpt-2"))
    theirs = gguf_files.llama_tokenizer(file)
    for name in NAMED:
        assert ours.encode(f"a{name}b") == theirs(f"a{name}b"), name
    # The first is text where a return and a call are there.
    assert (ours.token_id(NAMED[0]) in ours.special_ids) == (count < 3)


def test_phi3_swallows_spaces_behind_special_tokens(tmp_path: Path) -> None:
    base = gguf_files.pieces()
    tokens = [*base["tokenizer.ggml.tokens"], "<|end|>", "<|endoftext|>"]
    types = [*base["tokenizer.ggml.token_type"].tolist(), CONTROL, CONTROL]
    scores = [*base["tokenizer.ggml.scores"].tolist(), -1000.0, -1000.0]
    metadata = gguf_files.piece_vocabulary(tokens, types, scores)
    text = "x<|end|>\n  y<s>  y</s> z<|endoftext|> z"
    found = []
    for name in ("Phi-3 mini", "another"):
        file = tmp_path / f"{name}.gguf"
        ours = load(file, {**metadata, "general.name": name})
        found.append(ours.encode(text))
        assert found[-1] == gguf_files.llama_tokenizer(file)(text)
    assert len(found[0]) < len(found[1])


def changed(metadata: dict[str, Any], **entries: Any) -> dict[str, Any]:
    renamed = {f"tokenizer.ggml.{name}": found for name, found in entries.items()}
    return {key: v for key, v in {**metadata, **renamed}.items() if v is not None}


BYTES = gguf_files.byte_pairs("gpt-2")
PIECES = gguf_files.pieces()


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (changed(BYTES, model=None), "the file has none"),
        (changed(BYTES, model="bert\nx"), "'bert?x' is unknown here"),
        (changed(BYTES, pre="nobody's"), 'pre-tokenizer "nobody\'s" is unknown'),
        (changed(BYTES, merges=None), "lists no merges"),
        (changed(BYTES, merges=np.zeros(3, np.int32)), "lists no merges"),
        (changed(BYTES, tokens=None), "holds no tokens"),
        (changed(BYTES, tokens=[]), "holds no tokens"),
        (changed(BYTES, tokens=["a", "b", "a"]), "'a' appears twice"),
        (changed(BYTES, tokens=[b"\xff", b"x"]), "not UTF-8"),
        (changed(BYTES, token_type=np.zeros(3, np.int32)), "token types"),
        (
            changed(
                BYTES,
                tokens=[str(i) for i in range(70000)],
                token_type=np.full(70000, CONTROL, np.int32),
            ),
            "70000 special tokens, expected at most 65536",
        ),
        (changed(PIECES, scores=None), "scores"),
        (changed(PIECES, scores=np.full(9999, np.nan, np.float32)), "scores"),
        (changed(PIECES, tokens=["a" * 40000], scores=np.zeros(1, np.float32)), "too long"),
    ],
)
def test_refused(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(BundleError) as refused:
        load(tmp_path / "vocab.gguf", metadata)
    assert message in str(refused.value)
    assert str(tmp_path / "vocab.gguf") in str(refused.value)


def test_empty_and_odd_tokens(tmp_path: Path) -> None:
    """As llama.cpp: a token without a name gets one, ids outside the vocabulary count as none."""
    metadata = changed(BYTES, bos_token_id=10**6, eos_token_id=10**6)
    metadata["tokenizer.ggml.tokens"] = [*BYTES["tokenizer.ggml.tokens"][:-1], ""]
    tokenizer = load(tmp_path / "vocab.gguf", metadata)
    last = len(metadata["tokenizer.ggml.tokens"]) - 1
    assert tokenizer.token_id(f"[EMPTY_{last}]") == last
    assert tokenizer.eos_id == 11


def test_user_defined_tokens_are_text(tmp_path: Path) -> None:
    types = BYTES["tokenizer.ggml.token_type"]
    assert types[-1] == USER_DEFINED
    tokenizer = load(tmp_path / "vocab.gguf", BYTES)
    ids = tokenizer.encode("a  xa")
    assert ids[1] == len(types) - 1
    assert tokenizer.decode(ids) == "a  xa"


@pytest.mark.timeout(60)
def test_digits_in_groups_do_not_make_text_without_digits_slow() -> None:
    """Quadratic time would take many minutes here."""
    from tokenizers import Regex, pre_tokenizers

    groups = pre_tokenizers.Split(Regex(PRESPLITS["afmoe"].patterns[0]), "isolated")
    letters = "a" * 500_000
    assert [piece for piece, _ in groups.pre_tokenize_str(f"{letters}1234 b")] == [
        f"{letters}1", "234", " b",
    ]  # fmt: skip
    assert [piece for piece, _ in groups.pre_tokenize_str(letters)] == [letters]
