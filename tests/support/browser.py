"""A headless Chromium, driven over its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from waiting import LIMIT_S


class Browser:
    """One page.

    Attributes:
        requests: addresses that it asked for.
        errors: what its console and its log said was wrong.

    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._held, self._next, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._next += 1
        task: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if self._session:
            task["sessionId"] = self._session
        os.write(self._write, json.dumps(task).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._next:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _message(self) -> Any:
        while b"\0" not in self._held:
            more = os.read(self._read, 1 << 16)
            assert more, "the browser has ended"
            self._held += more
        raw, _, self._held = self._held.partition(b"\0")
        return json.loads(raw)

    def _note(self, message: Any) -> None:
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif kind == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression; of a promise, what it resolves to."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = LIMIT_S) -> Any:
        end = monotonic() + seconds
        while not (found := self.run(script)):
            assert monotonic() < end, f"never true: {script}"
            sleep(0.05)
        return found

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                text="\r" if key == "Enter" else "",
            )  # fmt: skip

    def size(self, width: int, height: int, *, dark: bool = False, still: bool = False) -> None:
        """Set the window's size, and what its user prefers: a dark page, one without motion."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        preferred = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        features = [{"name": name, "value": value} for name, value in preferred.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def shoot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None  # the marker skips without one
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--disable-extensions", "--disable-default-apps")  # fmt: skip
    command = [
        "bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash",
        program, "--headless", "--no-sandbox", "--disable-gpu", *quiet,
        f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(to_write, from_read)
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        os.close(to_write)
        os.close(from_read)
