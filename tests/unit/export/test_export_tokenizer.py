"""Tokenizers are compared by what they do."""

import json
import re

import pytest
import tiny_tokenizers

from edgedec.errors import CheckpointError
from edgedec.export.tokenizer import TokenizerContent


@pytest.fixture(params=["byte-level", "llama"])
def folders(request, tmp_path):
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        tiny_tokenizers.save(tiny_tokenizers.KINDS[request.param](), tmp_path / name)
    return tmp_path / "target", tmp_path / "draft"


def edit(folder, change, **how):
    file = folder / "tokenizer.json"
    parsed = json.loads(file.read_text("utf-8"))
    change(parsed)
    file.write_text(json.dumps(parsed, **how), "utf-8")


def difference(folders):
    return TokenizerContent(folders[0]).difference(TokenizerContent(folders[1]))


def check(folders):
    assert difference(folders) == ""


def mismatch(folders, words):
    found = difference(folders)
    assert re.search(words, found)
    assert "\n" not in found
    one, two = (TokenizerContent(folder).sha256 for folder in folders)
    assert one != two


def test_the_same_file(folders):
    check(folders)


def test_another_way_to_write_it(folders):
    def rewrite(parsed):
        merges = parsed["model"]["merges"]
        parsed["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in merges]
        parsed["truncation"] = {
            "max_length": 7,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        }
        parsed["post_processor"] = None
        parsed["model"]["vocab"] = dict(reversed(parsed["model"]["vocab"].items()))

    edit(folders[1], rewrite, indent=3, ensure_ascii=False)
    check(folders)


def test_two_tokens_swapped(folders):
    def swap(parsed):
        vocab = parsed["model"]["vocab"]
        one, two = (name for name, id in vocab.items() if id in (270, 300))
        vocab[one], vocab[two] = vocab[two], vocab[one]

    edit(folders[1], swap)
    mismatch(folders, r"^2 ids, first 270 \('.+' and '.+'\), 300 \(")


def test_one_token_more(folders):
    def add(parsed):
        last = max(parsed["model"]["vocab"].values(), default=0)
        last = max([last] + [t["id"] for t in parsed["added_tokens"]])
        entry = {**parsed["added_tokens"][0], "id": last + 1, "content": "<new>"}
        parsed["added_tokens"].append(entry)

    edit(folders[1], add)
    mismatch(folders, r"^1 ids, first \d+ \(None and '<new>'\)")


def test_merges_in_another_order(folders):
    def swap(parsed):
        merges = parsed["model"]["merges"]
        merges[3], merges[8] = merges[8], merges[3]

    edit(folders[1], swap)
    mismatch(folders, r"same tokens but another model \(merge 3: ")


def test_another_decoder(folders):
    edit(folders[1], lambda parsed: parsed.update(decoder={"type": "Fuse"}))
    mismatch(folders, "another decoder")


def test_a_special_token_that_is_not(folders):
    def change(parsed):
        parsed["added_tokens"][0]["special"] = False

    edit(folders[1], change)
    mismatch(folders, "another added-tokens")


def test_no_tokenizer(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json: get it from where"):
        TokenizerContent(tmp_path)
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(CheckpointError, match=r"or make it of tokenizer\.model .*AutoTokenizer"):
        TokenizerContent(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(CheckpointError, match=r"expected a Hugging Face tokenizer\.json"):
        TokenizerContent(tmp_path)
