"""Turns ``response_format`` into a constraint on the text."""

from __future__ import annotations

from typing import Any

from edgedec.serve.body import Body
from edgedec.serve.errors import refused


def read(asked: Body | None) -> dict[str, Any]:
    """Return the fields of ``GenerateOptions`` that a ``response_format`` asks for.

    Raises:
        ApiError: it is not as expected.

    """
    if asked is None:
        return {}
    kind = asked.text("type", ("text", "json_object", "json_schema"))
    part, schema = asked.part("json_schema"), asked.get("schema")  # llama.cpp's place for it
    asked.end()
    if kind == "json_object" and schema is None:
        return {"json_mode": True}
    if kind not in ("json_object", "json_schema"):
        return {}
    schema = schema if part is None else part.get("schema")
    if not isinstance(schema, dict):
        raise refused("response_format.json_schema.schema", "a JSON schema", schema)
    return {"json_schema": schema}
