"""Checkpoints: what is read, and what is refused in one line."""

import json
import math

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_models import MemoryTensors, random_tensors, save_checkpoint, tiny_config

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.safetensors import SafetensorsFile
from edgedec.export.tensors import PaddedTensors, chunks, read
from edgedec.models.registry import spec_for

CONFIG = tiny_config()
SPEC = spec_for(CONFIG)

# Of tensors that are read in chunks of 24 numbers.
SHAPES = {"one": (5, 4), "several": (7, 8), "wide": (2, 40), "numbers": (30,), "cube": (3, 2, 5)}


@pytest.fixture
def tensors():
    return random_tensors(SPEC)


@pytest.fixture
def folder(tmp_path, tensors):
    return save_checkpoint(tmp_path / "model", CONFIG, tensors)


def refused(folder, words):
    with pytest.raises(CheckpointError, match=words):
        Checkpoint.open(folder)


def shards(folder, tensors, index=None):
    """Two shards and an index in place of the one file."""
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    text = json.dumps({"weight_map": weight_map | (index or {})})
    (folder / "model.safetensors.index.json").write_text(text)


def test_rows_of_every_type(tmp_path, tensors):
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        stored = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
        folder = save_checkpoint(tmp_path / np.dtype(dtype).name, CONFIG, stored)
        opened = Checkpoint.open(folder).tensors
        for name, tensor in stored.items():
            np.testing.assert_array_equal(read(opened, name), tensor.astype(np.float32))
        name = SPEC.name("gate")
        part = opened.rows(name, 3, 9)
        assert part.dtype == np.float32
        np.testing.assert_array_equal(part, stored[name][3:9].astype(np.float32))


def test_shards_are_one_model(folder, tensors):
    shards(folder, tensors)
    opened = Checkpoint.open(folder)
    assert opened.tensors.files == {"one.safetensors", "two.safetensors"}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read(opened.tensors, name), tensor)


@pytest.mark.parametrize("place", ["../one.safetensors", "/etc/passwd", "..", "", "a/b", 3])
def test_an_index_cannot_leave_the_folder(folder, tensors, place):
    shards(folder, tensors, {"model.norm.weight": place})
    refused(folder, "not a file in this folder")


def test_an_index_that_names_the_wrong_shard(folder, tensors):
    wrong = dict.fromkeys(tensors, "one.safetensors")
    shards(folder, tensors, wrong)
    refused(folder, "has no tensor")


def test_missing_files(folder, tmp_path):
    refused(tmp_path / "nowhere", "is not a folder")
    (folder / "model.safetensors").unlink()
    refused(folder, "no model.safetensors")
    (folder / "config.json").unlink()
    (folder / "notes.txt").touch()
    refused(folder, "cannot be read")
    (tmp_path / "nothing").mkdir()
    refused(tmp_path / "nothing", "is an empty folder: give a bundle, a Hugging Face folder or")


def test_parts_of_a_model_lead_to_the_whole(folder, tmp_path):
    refused(folder / "config.json", f"is a file of a checkpoint: give the folder, {folder}$")
    refused(folder / "model.safetensors", "is a file of a checkpoint: give the folder, ")
    adapter = tmp_path / "lora"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    refused(adapter, r"is a LoRA adapter.*: merge it into its base model \(merge_and_unload")


def test_a_checkpoint_in_a_folder_with_another_manifest_is_read(folder):
    """Web projects have a manifest.json: what is below it is no part of a bundle."""
    (folder.parent / "manifest.json").write_text('{"name": "app"}')
    assert Checkpoint.open(folder).name == folder.name
    (folder.parent / "manifest.json").write_text('{"schema_version": 2}')
    assert Checkpoint.open(folder).name == folder.name


def test_a_linked_checkpoint_has_the_name_of_the_link(folder, tmp_path):
    (tmp_path / "mine").symlink_to(folder)
    assert Checkpoint.open(tmp_path / "mine").name == "mine"


def test_a_missing_tensor(folder, tensors):
    del tensors[SPEC.name("o", 1)]
    save_checkpoint(folder, CONFIG, tensors)
    refused(folder, r"no tensor model\.layers\.1\.self_attn\.o_proj\.weight, which llama needs")


def test_a_wrong_shape(folder, tensors):
    name = SPEC.name("gate")
    tensors[name] = np.ascontiguousarray(tensors[name].T)
    save_checkpoint(folder, CONFIG, tensors)
    refused(folder, r"is \[64, 128\], config.json says \[128, 64\]")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers(folder, tensors, value):
    name = SPEC.name("up")
    tensors[name][17, 5] = value
    save_checkpoint(folder, CONFIG, tensors)
    opened = Checkpoint.open(folder).tensors
    opened.rows(name, 0, 17)
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        list(chunks(opened, [name]))


def test_chunks_are_as_large_as_their_bound_allows(monkeypatch):
    monkeypatch.setattr("edgedec.export.tensors.CHUNK_NUMBERS", 24)
    held = {name: np.arange(math.prod(shape)).reshape(shape) for name, shape in SHAPES.items()}
    found = {name: list(chunks(MemoryTensors(held), [name])) for name in held}
    assert {name: [len(part) for part in parts] for name, parts in found.items()} == {
        "one": [5],
        "several": [3, 3, 1],
        "wide": [1, 1],  # a row is never cut
        "numbers": [24, 6],
        "cube": [2, 1],
    }
    for name, parts in found.items():
        np.testing.assert_array_equal(np.concatenate(parts), held[name])


def test_large_weights_are_numbers(folder, tensors):
    """Their sum overflows; they are refused by nobody."""
    name = SPEC.name("up")
    tensors[name][:] = 3e38
    save_checkpoint(folder, CONFIG, tensors)
    assert read(Checkpoint.open(folder).tensors, name).max() == np.float32(3e38)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_file_that_is_cut_short(folder, keep):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refused(folder, "not a sound safetensors file")


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model.safetensors.index.json"]
)
def test_a_file_that_is_a_folder(folder, name):
    for file in {name, "model.safetensors"}:
        (folder / file).unlink(missing_ok=True)
    (folder / name).mkdir()
    refused(folder, f"{name} cannot be read: Is a directory")


def test_a_file_that_is_cut_short_after_it_was_opened(folder):
    file, name = folder / "model.safetensors", SPEC.name("q")
    opened = SafetensorsFile(file)
    rows = opened.shape(name)[0]
    whole = opened.rows(name, 0, rows)
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    with file.open("r+b") as stream:
        stream.truncate(header + opened._entries[name].stop - whole.itemsize)
    np.testing.assert_array_equal(opened.rows(name, 0, rows - 1), whole[:-1])
    with pytest.raises(CheckpointError, match="was cut short while it was read"):
        opened.rows(name, 0, rows)
    file.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        opened.rows(name, 0, 1)


def rewrite_header(file, change):
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_a_header_that_lies(folder):
    file, name, other = folder / "model.safetensors", SPEC.name("q"), SPEC.name("k")
    original = file.read_bytes()

    def lie(change, words):
        rewrite_header(file, change)
        refused(folder, words)
        file.write_bytes(original)

    lie(lambda h: h[name].update(shape=[2**40, 2**40]), "needs")
    lie(lambda h: h[name].update(data_offsets=[0, 2**50]), "cut short")
    lie(lambda h: h[name].update(data_offsets=[100, 50]), "cut short")
    lie(lambda h: h[name].update(data_offsets=h[other]["data_offsets"]), "needs")
    lie(lambda h: h[name].update(dtype="BF16"), "needs")
    lie(lambda h: h[name].update(shape=[-1, 4]), "describes no tensor")
    lie(lambda h: h.update({name: [1, 2]}), "describes no tensor")
    lie(lambda h: h.update(copy=h[name]), "share bytes")
    file.write_bytes((2**60).to_bytes(8, "little") + original[8:])
    refused(folder, "header should have")


def test_a_type_that_is_not_known(folder):
    name = SPEC.name("q")
    rewrite_header(folder / "model.safetensors", lambda h: h[name].update(dtype="F8_E4M3"))
    with pytest.raises(CheckpointError, match="F8_E4M3, expected F32, F16, BF16"):
        read(Checkpoint.open(folder).tensors, name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": "64"}, "expected a size"),
        ({"hidden_size": True}, "expected a size"),
        ({"num_hidden_layers": 0}, "is 0"),
        ({"vocab_size": 10**12}, "expected a size"),
        ({"num_key_value_heads": 3}, "cannot share"),
        ({"head_dim": 15}, "is odd"),
        ({"rms_norm_eps": "nan"}, "rms_norm_eps"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, "factor"),
        ({"rope_scaling": [1]}, "expected an object"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "short_factor of the longrope"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 4,
                    "high_freq_factor": 4,
                    "original_max_position_embeddings": 99,
                }
            },
            "not below",
        ),
        ({"tie_word_embeddings": "yes"}, "true or false"),
        ({"edgedec_vocab_used": 97}, "edgedec_vocab_used"),
        ({"model_type": None}, "no model_type"),
    ],
)
def test_a_configuration_that_makes_no_sense(folder, changes, words):
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    refused(folder, words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, "known are .*llama, .*mistral, .*qwen2, qwen3"),
        ({"model_type": "registry"}, "has no spec"),
        ({"model_type": "../llama"}, "has no spec"),
        ({"hidden_act": "relu"}, "relu"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "spiral"),
        ({"quantization_config": {"bits": 4}}, "quantised already"),
    ],
)
def test_what_is_not_computed_is_refused(folder, changes, words):
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(UnsupportedArchitecture, match=words):
        Checkpoint.open(folder)


def test_eos_ids(folder):
    assert Checkpoint.open(folder).eos_ids == (0,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 5]}')
    assert Checkpoint.open(folder).eos_ids == (3, 5)
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 5000]}')
    with pytest.raises(CheckpointError, match="is not a token"):
        _ = Checkpoint.open(folder).eos_ids


def test_licence(folder):
    assert Checkpoint.open(folder).licence is None
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    assert Checkpoint.open(folder).licence == "apache-2.0"


def test_padding_adds_rows_of_zeros():
    padded = PaddedTensors(MemoryTensors({"a": np.ones((5, 3)), "b": np.ones(4)}), {"a": 8})
    assert padded.shape("a") == (8, 3)
    assert padded.shape("b") == (4,)
    assert padded.rows("a", 3, 7).sum() == 6
    assert padded.rows("a", 6, 8).shape == (2, 3)
    assert read(padded, "a").sum() == 15


def test_the_mask_of_a_parallel_draft(folder):
    config = json.loads((folder / "config.json").read_text())
    assert Checkpoint.open(folder).mask_token is None
    (folder / "config.json").write_text(json.dumps({**config, "pard_token": 7}))
    assert Checkpoint.open(folder).mask_token == 7
    for wrong in (-1, 7.0, "7", True, SPEC.vocab_size):
        (folder / "config.json").write_text(json.dumps({**config, "pard_token": wrong}))
        with pytest.raises(CheckpointError, match=r"pard_token .* is not a token"):
            _ = Checkpoint.open(folder).mask_token


def noted(tmp_path, tensors, **changes):
    return Checkpoint.open(save_checkpoint(tmp_path / "noted", CONFIG | changes, tensors))


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["model.layers.0.self_attn.q_proj.bias"], True),
        (["model.layers.0.mlp.extra.weight"], True),
        (["model.layers.99.mlp.up_proj.weight"], True),
        (["model.norm.bias"], True),
        (["classifier.weight"], True),
        (["model.layers.0.self_attn.q_proj.lora_A.weight"], True),
        # Kinds that a decoder of text does without.
        (["model.layers.0.self_attn.rotary_emb.inv_freq"], False),
        (["transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"], False),
        (["vision_tower.layers.0.weight", "multi_modal_projector.weight"], False),
        (["model.mtp_layers.0.input_proj.weight"], False),
        ([], False),
    ],
)
def test_tensors_that_no_export_reads_are_named(tmp_path, tensors, more, named):
    found = noted(tmp_path, tensors | {name: np.ones(4, np.float32) for name in more})
    assert found.notes == ((f"not used: {more[0]}",) if named else ())


def test_of_many_tensors_the_first_are_named(tmp_path, tensors):
    many = {f"other.{index}": np.ones(2, np.float32) for index in range(9)}
    (note,) = noted(tmp_path, tensors | many).notes
    assert note == "not used: other.0, other.1, other.2, other.3 and 5 more"


def test_a_head_that_contradicts_the_configuration_is_kept(tmp_path, tensors):
    # As transformers 5 and llama.cpp's converter do.
    assert not SPEC.tied
    own = noted(tmp_path / "own", tensors, tie_word_embeddings=True)
    assert not own.spec.tied
    np.testing.assert_array_equal(read(own.tensors, "lm_head.weight"), tensors["lm_head.weight"])
    (note,) = own.notes
    assert note.startswith("config.json ties the head to the embedding, and the files hold a head")
    # The controls: the same values, and no head at all.
    same = tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    without = {name: value for name, value in tensors.items() if name != "lm_head.weight"}
    for place, stored in (("same", same), ("without", without)):
        tied = noted(tmp_path / place, stored, tie_word_embeddings=True)
        assert (tied.spec.tied, tied.notes) == (True, ())


def test_a_last_row_of_a_head_that_differs(tmp_path, tensors):
    head = tensors["model.embed_tokens.weight"].copy()
    head[-1, -1] += 1
    found = noted(tmp_path, tensors | {"lm_head.weight": head}, tie_word_embeddings=True)
    assert not found.spec.tied
