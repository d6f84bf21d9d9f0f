"""Errors in the API's shape."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse

from edgedec._support.fields import one_line, printable
from edgedec.errors import (
    EdgedecError,
    ExtraMissing,
    InputError,
    MemoryBudgetError,
    PromptTooLong,
)

_LONGEST = 1000
_NOT_IMPLEMENTED = 501


class Answer(JSONResponse):
    """JSON in ASCII: a model may write half of a surrogate pair, which UTF-8 cannot hold."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class ApiError(Exception):
    """A refused request.

    What it repeats of the request is cut short and made printable here.

    Attributes:
        message: one line: what was expected, what to do.
        kind: the API's ``type``.
        param: the field that was refused.
        code: the API's ``code``.
        retry_s: seconds after which to ask again.

    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "",
        param: str | None = None,
        code: str | None = None,
        retry_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_s = status, code, retry_s
        self.kind = kind or ("invalid_request_error" if status < 500 else "server_error")
        self.message = printable(message[:_LONGEST])
        self.param = None if param is None else one_line(param)

    def body(self) -> dict[str, Any]:
        """Return it in the API's format."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self, body: Callable[[ApiError], dict[str, Any]] | None = None) -> Answer:
        """Return it as an HTTP response.

        Args:
            body: returns its content; None has OpenAI's format.

        """
        headers = self._headers()
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return Answer(self.body() if body is None else body(self), self.status, headers)

    def unready(self) -> Answer:
        """Return it as the answer to what asks whether requests are taken: 503 and the reason."""
        body = {"status": self.code, "message": self.message}
        return Answer(body, 503, self._headers())

    def _headers(self) -> dict[str, str]:
        if self.status == _NOT_IMPLEMENTED:  # or OpenAI's and Anthropic's clients repeat it, as 5xx
            return {"X-Should-Retry": "false"}
        return {} if self.retry_s is None else {"Retry-After": str(self.retry_s)}


def refused(param: str, expected: str, got: object) -> ApiError:
    """Return the error of a field that is not as expected."""
    return ApiError(
        400, f"{one_line(param)}: expected {expected}, got {reprlib.repr(got):.60}", param=param
    )


def busy(message: str, retry_s: int) -> ApiError:
    """Return the error of a request that finds no place to wait."""
    return ApiError(429, message, kind="rate_limit_error", code="queue_full", retry_s=retry_s)


def ending() -> ApiError:
    """Return the error of a request that meets the server's end."""
    why = "the server is shutting down: try again later"
    return ApiError(503, why, code="shutting_down", retry_s=5)


def reloading() -> ApiError:
    """Return the error of a server whose model is opened again after a failure."""
    why = "the model is being opened again: try again later"
    return ApiError(503, why, code="reloading", retry_s=5)


def stopped() -> ApiError:
    """Return the error of a server whose decoding has stopped."""
    return ApiError(503, "decoding has stopped: start the server again", code="stopped")


def of(error: Exception) -> ApiError:
    """Return the API's error for an error of decoding."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PromptTooLong):
        return ApiError(400, str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, InputError):
        return ApiError(400, str(error))
    if isinstance(error, MemoryBudgetError):
        return ApiError(503, str(error), code="insufficient_memory")
    if isinstance(error, ExtraMissing):
        return ApiError(_NOT_IMPLEMENTED, str(error), code="package_not_installed")
    if isinstance(error, EdgedecError):
        return ApiError(503, str(error))
    return ApiError(500, "internal error: see the server's log")
