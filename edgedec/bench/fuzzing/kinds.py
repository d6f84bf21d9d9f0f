"""Kinds of untrusted input: a valid one of each, and its reader."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.coreml.package import MODEL, WEIGHTS
from edgedec.testing import damage, tiny_program
from edgedec.testing.damage import json_bytes

NAMES = (
    "manifest", "safetensors", "gguf", "onnx", "tokenizer", "coreml program", "coreml weights",
)  # fmt: skip
_DATA = b"the only file"
_TEXT = "def add(é): 😀\n"


def _furnish(folder: Path) -> None:
    (folder / "model").write_bytes(_DATA)
    (folder / "weights").write_bytes(bytes(64))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of input.

    Attributes:
        name: for records.
        share: of all inputs.
        file: its name in the folder it is read from.
        whole: a valid one.
        make: makes a damaged one.
        read: reads the file at this path as a user's command would; raises an EdgedecError to
            refuse it.
        furnish: puts files that valid inputs refer to into the folder they are read from.

    """

    name: str
    share: float
    file: str
    whole: bytes
    make: Callable[[random.Random], bytes]
    read: Callable[[Path], None]
    furnish: Callable[[Path], None] = field(default=_furnish)


def kinds(folder: Path) -> list[Kind]:
    """Return all kinds; valid inputs are made in ``folder``."""
    manifest, tokenizer, gguf, onnx = _manifest(), _tokenizer(), _gguf(folder), _onnx()
    return [
        Kind("manifest", 0.25, MANIFEST, json_bytes(manifest), _json(manifest), _read_bundle),
        Kind("safetensors", 0.20, "model.safetensors", _safetensors(json_bytes(_HEADER)),
             _damaged_safetensors, _read_safetensors),
        Kind("gguf", 0.20, "model.gguf", gguf, lambda rng: damage.data(rng, gguf), _read_gguf),
        Kind("onnx", 0.15, "model.onnx", onnx, lambda rng: damage.data(rng, onnx), _read_onnx),
        Kind("tokenizer", 0.05, "tokenizer.json", json_bytes(tokenizer), _json(tokenizer),
             _read_tokenizer),
        _package(folder, "coreml program", 0.10, MODEL),
        _package(folder, "coreml weights", 0.05, WEIGHTS),
    ]  # fmt: skip


def _json(good: Any) -> Callable[[random.Random], bytes]:
    whole = json_bytes(good)

    def make(rng: random.Random) -> bytes:
        if rng.random() < 0.7:
            return json_bytes(damage.document(rng, good))
        return damage.data(rng, whole)

    return make


def _manifest() -> dict[str, Any]:
    fact = {"sha256": hashlib.sha256(_DATA).hexdigest(), "bytes": len(_DATA)}
    variant = {"file": "model", "files": ["model"], "weights": "int4", "kv": "fp32"}
    role = {
        "architecture": "llama",
        "source": "tiny",
        "licence": None,
        "dims": {"layers": 2},
        "tokenizer": {"file": "model", "content_sha256": "0" * 64},
        "variants": {"onnx": variant},
    }
    return {
        "schema_version": 2,
        "roles": {"target": role, "draft": role},
        "generation": {},
        "files": {"model": fact},
    }


def _read_bundle(file: Path) -> None:
    bundle = Bundle.open(file.parent, verify=True)
    for role in bundle.roles:
        for variant in role.variants.values():
            if not variant.path.is_relative_to(bundle.path):
                raise AssertionError(f"{variant.path} is outside the bundle")


_HEADER = {
    "a": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
    "b": {"dtype": "F16", "shape": [8], "data_offsets": [48, 64]},
}


def _safetensors(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(64)


def _damaged_safetensors(rng: random.Random) -> bytes:
    if rng.random() < 0.7:
        return _safetensors(json_bytes(damage.document(rng, _HEADER)))
    return damage.data(rng, _safetensors(json_bytes(_HEADER)))


def _read_safetensors(file: Path) -> None:
    from edgedec.export.safetensors import SafetensorsFile

    opened = SafetensorsFile(file)
    for name in opened.names:
        shape = opened.shape(name)
        opened.rows(name, 0, shape[0] if shape else 1)


def _gguf(folder: Path) -> bytes:
    import gguf
    import numpy as np

    file = folder / "sound.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_float32("some.number", 0.5)
    writer.add_bool("some.flag", True)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", "a", "b", "ab"])
    writer.add_token_types([2, 3, 3, 1, 1, 1])
    writer.add_tensor("token_embd.weight", np.zeros((6, 4), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file.read_bytes()


def _read_gguf(file: Path) -> None:
    from edgedec.gguf import GgufHeader, describe
    from edgedec.gguf.describe import as_json
    from edgedec.gguf.parts import decodable_parts

    header = GgufHeader.read(file)
    describe(header)
    json.dumps(as_json(header))
    decodable_parts(header)


def _package(folder: Path, name: str, share: float, file: str) -> Kind:
    """Return a small CoreML package of which one file is damaged."""
    sound = folder / f"{name}.mlpackage"
    tiny_program.write(sound)
    whole = (sound / file).read_bytes()

    def furnish(inside: Path) -> None:
        shutil.copytree(sound, inside, dirs_exist_ok=True)

    def read(damaged: Path) -> None:
        for _ in tiny_program.use(damaged.parents[len(Path(file).parts) - 1]):
            pass

    def make(rng: random.Random) -> bytes:
        # Where lengths are wrong nothing behind the first reader is reached.
        damaging = damage.data if rng.random() < 0.5 else damage.single_bytes
        return damaging(rng, whole)

    return Kind(name, share, file, whole, make, read, furnish)


def _onnx() -> bytes:
    import onnx

    stored = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location="EXTERNAL")
    for key, tokenizer in (("location", "weights"), ("offset", "16"), ("length", "16")):
        stored.external_data.add(key=key, value=tokenizer)
    inline = onnx.helper.make_tensor("v", 1, [4], [1.0, 2.0, 3.0, 4.0])
    node = onnx.helper.make_node("Constant", [], ["c"], value=inline)
    inputs = [onnx.helper.make_tensor_value_info("x", 1, [4])]
    graph = onnx.helper.make_graph([node], "g", inputs, inputs, [stored, inline])
    model = onnx.helper.make_model(graph)
    model.metadata_props.add(key="edgedec", value='{"name": "tiny"}')
    found: bytes = model.SerializeToString()
    return found


def _read_onnx(file: Path) -> None:
    from edgedec.bundle.onnx_file import read_model_file

    folder = file.parent.resolve()
    for location, offset, length in read_model_file(file).stored:
        place = (folder / location).resolve()
        if not place.is_relative_to(folder) or place.stat().st_size < offset + length:
            raise AssertionError(f"{location} is outside the folder or too short")


def _tokenizer() -> dict[str, Any]:
    """Return the demo's tokenizer with its first tokens only: bytes, and merges of two."""
    source = json.loads((Bundle.open("demo").target.tokenizer / "tokenizer.json").read_bytes())
    model = source["model"]
    kept = {tokenizer: id for tokenizer, id in model["vocab"].items() if id < 300}
    pairs = [pair if isinstance(pair, list) else pair.split(" ", 1) for pair in model["merges"]]
    model["merges"] = [pair for pair in pairs if {*pair, "".join(pair)} <= kept.keys()]
    model["vocab"] = kept
    source["added_tokens"] = [token for token in source["added_tokens"] if token["id"] < 300]
    return dict(source)


def _read_tokenizer(file: Path) -> None:
    """Read first in a child, as an unknown file; then here."""
    from edgedec.errors import BundleError
    from edgedec.text import tokenizer_check
    from edgedec.text.tokenizer import Tokenizer

    try:
        content = file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"not UTF-8 at byte {error.start}") from None
    tokenizer_check.try_in_child(content, "fuzz")
    tokenizer = Tokenizer(tokenizer_check.parse(content, "fuzz"), {})
    ids = tokenizer.encode(_TEXT)
    stream = tokenizer.stream()
    streamed = "".join(map(stream.push, ids)) + stream.flush()
    if streamed != tokenizer.decode(ids):
        raise AssertionError("the stream's text is not the decoder's")
