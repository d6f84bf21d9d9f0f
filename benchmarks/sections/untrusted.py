"""Bundles made to do harm: how the command refuses each, how soon, and with how much memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.compare.records import Recorder

if TYPE_CHECKING:
    from benchmarks.bundles import Suite

HARMLESS = "harmless"
MAX_SECONDS, MAX_BYTES = 2.0, 300_000_000
_TOKENIZER, _CONFIG = "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"
_TEMPLATE = "tokenizer/chat_template.jinja"
_PANIC = {
    "type": "Split",
    "pattern": {"Regex": "(x+x+)+y"},
    "behavior": "Isolated",
    "invert": False,
}
_DOUBLING = {"type": "Replace", "pattern": {"String": "q"}, "content": "qq"}


_DOUBLED = "".join(
    "{% set b %}{{ a }}{{ a }}{% endset %}{% set a %}{{ b }}{% endset %}" for _ in range(30)
)
_MACROS = "d(" * 28 + "'xxxxxxxx'" + ")" * 28
_NESTED = "".join("{% set l = [l, l] %}" for _ in range(30))
ATTACKS = {
    "format": '{{ "{:>900000000}".format("x") }}',
    "to_bytes": "{{ (1).to_bytes(900000000, 'big') | length }}",
    "set blocks": "{% set a %}xxxxxxxx{% endset %}" + _DOUBLED + "{{ a }}",
    "macros": "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{{ " + _MACROS + " }}",
    "nested lists": "{% set l = 'xxxxxxxx' %}" + _NESTED + "{{ l | string | length }}",
    "round": "{{ 1.5 | round(30000000, 'ceil') }}",
    "sum": (
        "{% set l = [range(1000) | list] * 1000 %}{% for i in range(1000) %}"
        "{{ l | sum(start=[]) | length }}{% endfor %}"
    ),
    "large strings": (
        "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
        "{% set ns.l = ns.l + ['x' * 3000000 + i | string] %}{% endfor %}{{ ns.l | length }}"
    ),
}


@dataclass(frozen=True, slots=True)
class Attack:
    """A folder that looks like a bundle, and what is asked of it."""

    name: str
    folder: Path
    command: tuple[str, ...]


def untrusted(suite: Suite, recorder: Recorder) -> list[dict[str, Any]]:
    """Give bundles made to do harm to the command, and measure how it refuses them."""
    return run(recorder)


def run(recorder: Recorder, names: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """Run the attacks of these names, by default all, and a bundle that is harmless.

    A row ``holds`` if the command ended by itself with one line (``HARMLESS``: with a text), in
    ``MAX_SECONDS`` of processor time and ``MAX_BYTES`` of memory, its and its children's together.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="edgedec-untrusted-") as made:
        for attack in attacks(Path(made)):
            if names is None or attack.name in names:
                row = _measured(attack, Path(made) / "home")
                recorder.add(kind="attack", **row)
                rows.append(row)
    return rows


def attacks(made: Path) -> Iterator[Attack]:
    """Yield each attack, made in this folder, and ``HARMLESS``, which is none."""
    messages = made / "messages.json"
    messages.write_text('[{"role": "user", "content": "Hi"}]', "utf-8")
    chat = ("--messages", str(messages), "--max-new-tokens", "1")
    text = ("x" * 64, "--max-new-tokens", "1")
    for name, template in {HARMLESS: "{{ messages[0].content }}", **ATTACKS}.items():
        folder = _copied(made)
        _put(folder, _TEMPLATE, template)
        yield Attack(name if name == HARMLESS else f"template: {name}", folder, chat)
    doublings = {"type": "Sequence", "normalizers": [_DOUBLING] * 26}
    parts: list[tuple[str, str, dict[str, Any]]] = [
        ("tokenizer: a panic", "pre_tokenizer", _PANIC),
        ("tokenizer: 26 doublings", "normalizer", doublings),
    ]
    for name, part, harm in parts:
        folder = _copied(made)
        source = json.loads((folder / _TOKENIZER).read_bytes())
        _put(folder, _TOKENIZER, json.dumps({**source, part: harm}))
        yield Attack(name, folder, text)
    folder = _copied(made)
    (folder / _CONFIG).unlink()
    (folder / _CONFIG).symlink_to("/etc/passwd")
    yield Attack("a link out of the bundle", folder, text)
    folder = _copied(made)
    (folder / _CONFIG).unlink()
    os.mkfifo(folder / _CONFIG)
    yield Attack("a FIFO", folder, text)


def _copied(made: Path) -> Path:
    """Return a fresh copy of the bundle that ships."""
    return Path(shutil.copytree(Bundle.open("demo").path, tempfile.mkdtemp(dir=made) + "/bundle"))


def _put(folder: Path, name: str, content: str) -> None:
    """Put a file into a bundle and list it, as who wants to do harm would."""
    data = content.encode()
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")


def _measured(attack: Attack, home: Path) -> dict[str, Any]:
    """Run the command on a bundle that no cache knows."""
    command = [sys.executable, "-m", "benchmarks.sections._untrusted_child"]
    command += ["generate", str(attack.folder), *attack.command]
    environment = {**os.environ, "XDG_CACHE_HOME": str(home / attack.folder.parent.name)}
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    seconds = time.perf_counter() - begin
    *said, cost = done.stderr.splitlines()
    found = json.loads(cost)
    refused = done.returncode == 2 and len(said) == 1 and not done.stdout
    ended = done.returncode == 0 if attack.name == HARMLESS else refused
    within = found["processor_s"] <= MAX_SECONDS and found["peak_bytes"] <= MAX_BYTES
    return {
        "name": attack.name,
        "seconds": seconds,
        **found,
        "code": done.returncode,
        "said": said[0].replace(str(attack.folder), "BUNDLE") if said else "",
        "holds": ended and within,
    }
