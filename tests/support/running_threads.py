"""The threads of a test's own doing."""

from __future__ import annotations

import threading


def threads() -> set[threading.Thread]:
    """Running threads, without those that watch a sandboxed child.

    Such a child stays for the next test's tokenizer or template, and its watcher ends a moment
    after it, so that a test may see either come or go.
    """
    return {thread for thread in threading.enumerate() if thread.name != "edgedec-child"}
