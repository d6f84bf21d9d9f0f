"""What the page says about the way of drafting, without a browser."""

from __future__ import annotations

import re
from importlib import resources

from edgedec.decoding import drafting


def test_the_page_has_a_sentence_for_each_drafter() -> None:
    """It speaks of a draft model or a head where there must be one, and only there."""
    source = (resources.files("edgedec.serve") / "static" / "plan.js").read_text("utf-8")
    said = dict(re.findall(r'^  (\w+): "(.*)",$', source, re.MULTILINE))
    assert set(said) == set(drafting.names())
    for name, sentence in said.items():
        info = drafting.info(name)
        assert ("draft model" in sentence) == info.needs_model, name
        assert ("head" in sentence) == info.needs_head, name
