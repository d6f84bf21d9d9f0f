"""Reads what a chat's request says about thinking, and its variables for the chat template."""

from __future__ import annotations

import json
from typing import Any

from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError, refused
from edgedec.text.chat import EFFORT, SWITCHES

# The values of the API; a template reads those that it knows.
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_MOST, _MOST_CHARS = 32, 8192
_RESERVED = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")


def read(body: Body) -> tuple[dict[str, Any], bool | None]:
    """Return the template's variables, and whether the model is to think; None: as it does.

    Raises:
        ApiError: a field is not as expected.

    """
    found = _variables(body.get("chat_template_kwargs"))
    think, effort = body.flag("enable_thinking"), body.text(EFFORT, _EFFORTS)
    if effort == "none":
        think = False if think is None else think
    elif effort is not None:
        found[EFFORT] = effort
    if think is None:
        think = next((found[name] for name in SWITCHES if isinstance(found.get(name), bool)), None)
    return found, think


def _variables(given: Any) -> dict[str, Any]:
    where = "chat_template_kwargs"
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > _MOST:
        raise refused(where, f"an object of at most {_MOST} values", given)
    for name, value in given.items():
        if name in _RESERVED or not name.isidentifier():
            raise ApiError(400, f"{where}: {name!r:.60}: not a variable of its own", param=where)
        if len(json.dumps(value)) > _MOST_CHARS:
            raise refused(f"{where}.{name}", f"at most {_MOST_CHARS} characters of JSON", value)
    return dict(given)
