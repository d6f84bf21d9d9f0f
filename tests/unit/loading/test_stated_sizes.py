"""A manifest's sizes are held against the model's file before anything is planned by them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import demo_head
import pytest
import tiny_bundles
import tiny_gemma4
import tiny_granite
import tiny_lfm2
import tiny_qwen3_5
from kinds import in_full
from tiny_checkpoints import noisy_checkpoint
from tiny_models import tiny_checkpoint

from edgedec import Pipeline
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import BundleError
from edgedec.export import ExportOptions
from edgedec.loading import sources
from edgedec.records.adapter import SIZES

PACKAGES = {"gguf": "llama_cpp"}
FORMATS = [
    ("onnx",),
    pytest.param(("gguf",), marks=pytest.mark.full),
    pytest.param(("onnx-static",), marks=pytest.mark.full),
    pytest.param(("coreml",), marks=pytest.mark.full),
    # They have other contexts: the manifest states the longer one.
    pytest.param(("onnx", "onnx-static"), marks=pytest.mark.full),
]


def pair(folder: Path, formats: tuple[str, ...]) -> Path:
    for name in formats:
        pytest.importorskip(PACKAGES.get(name, "onnxruntime"))
    target = noisy_checkpoint(folder / "target", noise=0, context=256)
    draft = noisy_checkpoint(folder / "draft", noise=0.01, context=256)
    options = ExportOptions(target, folder / "pair", draft, formats=formats, parity=False)
    return Path(shutil.copytree(tiny_bundles.kept(options), folder / "copy"))


def state(bundle: Path, role: str, name: str, size: int) -> None:
    file = bundle / MANIFEST
    manifest = json.loads(file.read_text("utf-8"))
    manifest["roles"][role]["dims"][name] = size
    file.write_text(json.dumps(manifest), "utf-8")


def admit(bundle: Path, role: str, format: str) -> None:
    opened = Bundle.open(bundle)
    found = getattr(opened, role)
    sources._of_role(opened, found, format).admit()


def admit_all(bundle: Path, role: str, formats: tuple[str, ...]) -> None:
    for format in formats:
        admit(bundle, role, format)


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("role", ["target", "draft"])
def test_each_size_is_held_against_the_file(
    tmp_path: Path, formats: tuple[str, ...], role: str
) -> None:
    bundle = pair(tmp_path, formats)
    stated = dict(getattr(Bundle.open(bundle), role).dims)
    stated.setdefault("kv_layers", stated["layers"])
    each = stated["kv_heads"] * stated["head_dim"]
    stated.setdefault("kv_channels", stated["kv_layers"] * each)
    admit_all(bundle, role, formats)  # the control: as it was exported
    for name in SIZES:
        for wrong in (1, 10**7):
            state(bundle, role, name, wrong)
            with pytest.raises(BundleError, match=f"says {name} {wrong} of the {role}, "):
                admit_all(bundle, role, formats)
        state(bundle, role, name, stated[name])


@pytest.mark.parametrize("family", in_full([tiny_lfm2, tiny_qwen3_5, tiny_granite]))
@pytest.mark.parametrize("format", in_full(["onnx", "gguf"]))
def test_layers_without_keys_and_values_are_too(
    tmp_path: Path, format: str, family: ModuleType
) -> None:
    pytest.importorskip(PACKAGES.get(format, "onnxruntime"))
    target = tmp_path / "target"
    own = {name: value for name, value in family.CONFIG.items() if name != "vocab_size"}
    tiny_checkpoint(target, **own)
    options = ExportOptions(target, tmp_path / "bundle", formats=(format,), parity=False)
    bundle = Path(tiny_bundles.kept(options))
    admit(bundle, "target", format)
    assert Bundle.open(bundle).target.dims["kv_layers"] == 1
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    state(copy, "target", "kv_layers", 4)
    with pytest.raises(BundleError, match=r"says kv_layers 4 of the target, its file .* says 1"):
        admit(copy, "target", format)


@pytest.mark.parametrize("format", in_full(["onnx", "gguf"]))
def test_keys_of_several_sizes_are_too(tmp_path: Path, format: str) -> None:
    pytest.importorskip(PACKAGES.get(format, "onnxruntime"))
    target = tmp_path / "target"
    own = {name: value for name, value in tiny_gemma4.CONFIG.items() if "vocab_size" not in name}
    tiny_checkpoint(target, **{**own, "hidden_size_per_layer_input": 0})
    options = ExportOptions(target, tmp_path / "bundle", formats=(format,), parity=False)
    bundle = Path(tiny_bundles.kept(options))
    admit(bundle, "target", format)
    role = Bundle.open(bundle).target
    assert (role.dims["kv_layers"], role.dims["kv_channels"]) == (4, 160)
    assert role.kv_bytes_per_token(format) == {"onnx": 2 * 160 * 4, "gguf": None}[format]
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    state(copy, "target", "kv_channels", 224)
    with pytest.raises(BundleError, match=r"says kv_channels 224 of the target, its file .* says"):
        admit(copy, "target", format)


def test_a_heads_sizes_are_too(tmp_path: Path) -> None:
    head = ExportOptions(
        demo_head.MODELS / "target", Path("headed"), head=demo_head.MODELS / "head",
        weights="int8", parity=False,
    )  # fmt: skip
    bundle = Path(shutil.copytree(tiny_bundles.kept(head), tmp_path / "copy"))
    admit(bundle, "head", "onnx")
    state(bundle, "head", "kv_heads", 9)
    with pytest.raises(BundleError, match="says kv_heads 9 of the head, its file target/"):
        admit(bundle, "head", "onnx")


def test_opening_refuses_it_before_it_plans(tmp_path: Path) -> None:
    bundle = pair(tmp_path, ("onnx",))
    state(bundle, "target", "kv_heads", 1)
    with pytest.raises(BundleError, match="kv_heads 1 of the target"):
        Pipeline.open(bundle, memory="2GB")
