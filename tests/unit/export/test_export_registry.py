"""Architectures are found by the name of their file."""

import pytest

from edgedec import models
from edgedec.errors import UnsupportedArchitecture
from edgedec.models.registry import architectures, spec_for

TOY = """
from edgedec.models import llama

def spec(config):
    return llama.spec({**config, "intermediate_size": 7})
"""


@pytest.fixture
def with_toy(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "broken.py").write_text("import a_package_that_is_not_installed\n")
    (tmp_path / "tool.py").write_text("")
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])


CONFIG = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 9,
    "max_position_embeddings": 10,
}


def test_a_new_file_is_a_new_architecture(with_toy):
    assert set(architectures()) >= {"toy", "llama", "mistral", "qwen2", "qwen3"}
    assert spec_for({**CONFIG, "model_type": "toy"}).ffn == 7


def test_without_the_file_there_is_none():
    assert "toy" not in architectures()
    with pytest.raises(UnsupportedArchitecture, match="'toy' has no spec"):
        spec_for({**CONFIG, "model_type": "toy"})


def test_files_without_a_spec_are_no_architectures(with_toy):
    for name in ("tool", "broken", "registry", "demo", "rope"):
        assert name not in architectures()
        with pytest.raises(UnsupportedArchitecture):
            spec_for({**CONFIG, "model_type": name})


@pytest.mark.parametrize(
    ("fields", "windows"),
    [
        ({"model_type": "llama"}, (0, 0)),
        ({"model_type": "mistral"}, (4096, 4096)),
        ({"model_type": "mistral", "sliding_window": None}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 7}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 7, "use_sliding_window": True}, (0, 0)),
        (
            {"model_type": "qwen3", "sliding_window": 7, "use_sliding_window": True}
            | {"max_window_layers": 1},
            (0, 7),
        ),
        (
            {"model_type": "qwen3", "sliding_window": 7, "use_sliding_window": True}
            | {"layer_types": ["sliding_attention", "full_attention"]},
            (7, 0),
        ),
    ],
)
def test_windows_as_each_family_means_them(fields, windows):
    config = {**CONFIG, "intermediate_size": 8, "num_hidden_layers": 2, **fields}
    assert spec_for(config).windows == windows
