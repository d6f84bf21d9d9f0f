"""Writes edgedec/pipeline/names.pyi: the types of options by name, for type checkers and editors.

``help_pages.py`` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgedec._support.options import Declared, declared
from edgedec.export import ExportOptions
from edgedec.generation.keywords import TEXTS
from edgedec.loading.options import OPENINGS
from edgedec.records.function_options import PlanOptions, PullOptions

HEAD = '''"""Options by name. Written from their declarations by `make help-pages`; do not edit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from edgedec.decoding.params import SamplingParams
from edgedec.records.load import LoadOptions
'''
# Other names of options, and several of them together, which are accepted and not listed.
MORE = {
    "TextNames": {"timeout_s": "float | None", "sampling": "SamplingParams"},
    "OpenNames": {
        "load": "LoadOptions",
        "draft_load": "LoadOptions | None",
        "providers": "str | Sequence[str]",
        "kv_type": "str | None",
    },
}
TABLES: dict[str, Mapping[str, Declared]] = {
    "OpenNames": OPENINGS,
    "TextNames": TEXTS,
    "ConvertNames": declared(ExportOptions),
    "PlanNames": declared(PlanOptions),
    "PullNames": declared(PullOptions),
}


def page() -> str:
    """The whole file."""
    parts = [HEAD]
    for title, table in TABLES.items():
        types = {name: one.type for name, one in table.items()} | MORE.get(title, {})
        rows = "".join(f"    {name}: {kind}\n" for name, kind in types.items())
        parts.append(f"class {title}(TypedDict, total=False):\n{rows}")
    return "\n".join(parts)
