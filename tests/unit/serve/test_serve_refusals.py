"""Wrong requests of every route are refused in the shape of its API, with what was expected."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from serving import Server
from test_serve_tools import TOOLS

HELLO = [{"role": "user", "content": "Hello"}]
COMMON: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": 4},
    "/v1/completions": {"prompt": "x"},
    "/completion": {"prompt": "x"},
    "/v1/messages": {"messages": HELLO},
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1/responses": {"input": "x"},
    "/api/chat": {"messages": HELLO},
    "/api/generate": {"prompt": "x"},
}
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "/v1/chat/completions": [
        ({"model": 4}, "model: expected a name"),
        ({"messages": []}, "messages: expected a list"),
        ({"messages": [{"content": "x"}]}, "messages[0]: expected an object with a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text alone"),
        ({"temperature": -1}, "temperature: expected a number from 0"),
        ({"temperature": True}, "temperature: expected a number"),
        ({"max_tokens": 0}, "max_tokens: expected a whole number from 1"),
        ({"n": 99}, "n: expected a whole number from 1 to 8"),
        ({"seed": 1.5}, "seed: expected a whole number"),
        ({"stop": ["a"] * 17}, "stop: expected a text"),
        ({"stop": ["a" * 1000000]}, "stop: expected texts of at most"),
        ({"logit_bias": {"x": 1}}, "logit_bias: expected token ids"),
        ({"logit_bias": {"99999": 1}}, "99999"),
        ({"logit_bias": {"3": 1, "03": 2}}, "logit_bias: expected token ids"),
        ({"top_logprobs": 3}, "top_logprobs: needs logprobs"),
        ({"stream_options": {}}, "stream_options: needs stream"),
        ({"response_format": {"type": "xml"}}, "response_format.type: expected one of"),
        ({"response_format": {"type": "json_schema"}}, "schema: expected a JSON schema"),
        ({"tool_choice": "required"}, "tool_choice: expected tools to choose from"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]},
         "tools: expected functions with a name"),
        ({"model_path": "/etc/passwd"}, "model_path: this server does not have this field"),
        ({"edgedec": {"draft": "nobody"}}, "edgedec.draft: expected one of"),
        ({"edgedec": {"path": "x"}}, "edgedec.path: this server does not have this field"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, "the context holds 2048"),
        ({"tools": TOOLS, "tool_choice": "always"},
         "tool_choice: expected none, auto, required or"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}},
         "tool_choice: expected none, auto"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
         "tool_choice: expected a function of tools"),
        ({"tools": [*TOOLS] * 65}, "tools: expected at most 128"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools: expected functions of different names"),
        ({"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}},
         "expected one of them"),
        ({"tools": TOOLS, "tool_choice": "required", "grammar": 'root ::= "a"'},
         "grammar: a call that must be has its own"),
        ({"enable_thinking": "no"}, "enable_thinking: expected true or false"),
        ({"reasoning_effort": "huge"}, "reasoning_effort: expected one of none, minimal, low"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs: expected an object"),
        ({"chat_template_kwargs": {"messages": ""}}, "'messages': not a variable of its own"),
        ({"chat_template_kwargs": {"a b": 1}}, "'a b': not a variable of its own"),
        ({"chat_template_kwargs": {"a": ["x" * 9000]}}, "chat_template_kwargs.a: expected at most"),
        ({"chat_template_kwargs": {f"a{n}": 1 for n in range(33)}}, "an object of at most 32"),
        ({"edgedec": {"think_tokens": -1}}, "think_tokens: expected a whole number"),
    ],
    "/v1/completions": [
        ({"max_tokens": 7, "n_predict": 8}, "n_predict: it is max_tokens as well: leave one out"),
        ({"n_predict": 7, "num_predict": 8}, "num_predict: it is max_tokens as well"),
        ({"n_predict": 0}, "n_predict: expected a whole number from 1"),
        ({"temperature": 0, "options": {"temperature": 1}},
         "options.temperature: it is temperature"),
        ({"options": {"mirostat": 2}}, "options.mirostat: this server does not have this field"),
        ({"options": []}, "options: expected an object"),
        ({"format": "xml"}, "format: expected json or a JSON schema"),
        ({"json_schema": "x"}, "json_schema: expected a JSON schema"),
        ({"json_schema": {}, "format": "json"}, "format: it is response_format as well"),
        ({"json_schema": {}, "response_format": {"type": "text"}},
         "json_schema: it is response_form"),
        ({"json_schema": {}, "grammar": 'root ::= "a"'}, "expected one of them"),
        ({"grammar": ["x"]}, "grammar: expected a text"),
        ({"samplers": "kfypmt"}, "samplers: expected a list"),
        ({"samplers": ["top_p"], "temperature": 0.5}, "samplers: expected temperature, in this"),
        ({"samplers": [{}]}, "samplers: expected none of them, in this server's order"),
    ],
    "/v1/messages": [
        ({"messages": None}, "messages: expected a list of 1 to"),
        ({"messages": [{"role": "tool", "content": "x"}]},
         "messages[0]: expected a message of the"),
        ({"messages": [3]}, "messages[0]: expected a message of the role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
         "messages[0]: expected a text or blocks of the types text, tool_result, got 'image'"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]}, "with a text"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}]},
         "calls of functions by name"),
        ({"system": 3}, "system: expected a text or blocks of the types text"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]},
         "tools[0]: expected a tool of your own"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type: expected one of"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: expected tools to choose"),
        ({"thinking": {"type": "on"}}, "thinking.type: expected one of enabled"),
        ({"stop_sequences": "x"}, "stop_sequences: expected a list"),
        ({"stop": ["x"]}, "stop: send stop_sequences"),
        ({"n": 2}, "n: this route gives one text"),
        ({"output_config": {"format": {"type": "json_schema"}}},
         "output_config.format.schema: expected a JSON schema"),
        ({"temperature": "x"}, "temperature: expected a number"),
        ({"best_of": 3}, "best_of: this server does not have this field"),
    ],
    "/v1/responses": [
        ({"input": None}, "input: expected a text or a list"),
        ({"input": []}, "input: expected a text or a list"),
        ({"input": 3}, "input: expected a text or a list"),
        ({"input": [3]}, "input[0]: expected a message with text"),
        ({"input": [{"type": "function_call_output"}]}, "input[0]: expected a message with text"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "text alone"),
        ({"instructions": 3}, "instructions: expected a text"),
        ({"max_output_tokens": 0}, "max_output_tokens: expected a whole number"),
        ({"text": {"format": 3}}, "text.format: expected an object"),
        ({"text": {"format": {"type": "xml"}}}, "expected one of text, json_object"),
        ({"previous_response_id": "resp_1"}, "send the whole conversation as input"),
        ({"conversation": "c"}, "send the whole conversation as input"),
        ({"tools": [{"type": "web_search"}]}, "gives text alone: use /v1/chat"),
        ({"background": True}, "background: leave it out"),
        ({"truncation": "auto"}, "truncation: leave it out"),
        ({"messages": HELLO}, "messages: send input"),
        ({"max_tokens": 3}, "max_tokens: send max_output_tokens"),
        ({"n": 2}, "n: this route gives one text"),
        ({"stream_options": 3}, "stream_options: expected an object"),
        ({"model_path": "/etc"}, "model_path: this server does not have this field"),
    ],
    "/completion": [
        ({"prompt": None}, "prompt: expected one text, or its tokens"),
        ({"prompt": ["a", "b"]}, "prompt: expected one text, or its tokens"),
        ({"prompt": [1, "b"]}, "prompt: expected one text, or its tokens"),
        ({"n": 2}, "n: this route gives one text"),
        ({"echo": True}, "echo: use /v1/completions"),
        ({"n_predict": 0}, "n_predict: expected a whole number from 1"),
        ({"n_predict": 3, "max_tokens": 4}, "n_predict: it is max_tokens as well"),
        ({"n_probs": 3}, "n_probs: this server does not have this field"),
        ({"logit_bias": [["word", 1]]}, "logit_bias: expected pairs of a token's id and a number"),
        ({"logit_bias": [[3, 1], [3, 2]]}, "a token once"),
        ({"logit_bias": [[1, False]]}, "logit_bias: expected token ids with numbers"),
        ({"mirostat": 2}, "mirostat: this server does not have this field"),
        ({"prompt": "word " * 3000}, "the context holds 2048"),
    ],
    "/api/chat": [
        ({"messages": "x"}, "messages: expected a list"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aa"]}]}, "text alone"),
        ({"format": "xml"}, "format: expected json or a JSON schema"),
        ({"options": []}, "options: expected an object"),
        ({"options": {"num_predict": -3}}, "options.num_predict: expected"),
        ({"options": {"num_predict": 0}}, "options.num_predict: expected"),
        ({"options": {"mirostat": 2}}, "options.mirostat: this server does"),
        ({"options": {"stop": 3}}, "stop: expected a text"),
        ({"prompt": "x"}, "prompt: this server does not have this field"),
        ({"tools": [{}]}, "tools: expected functions with a name"),
    ],
    "/api/generate": [
        ({"prompt": 3}, "prompt: expected a text"),
        ({"context": [1]}, "context: send the conversation to /api/chat"),
        ({"images": ["aa"]}, "images: this server reads text alone"),
        ({"template": "{{ x }}"}, "template: this server uses the model's"),
        ({"raw": True, "system": "y"}, "system: a plain text has no"),
        ({"prompt": "word " * 3000}, "the context holds 2048"),
    ],
    "/api/show": [
        ({"model": 3}, "model: expected a text"),
    ],
    "/tokenize": [
        ({}, "expected prompt"),
        ({"prompt": "a", "content": "b"}, "expected prompt"),
        ({"content": "a", "parse_special": False}, "parse_special"),
    ],
    "/detokenize": [
        ({}, "tokens: expected a list of token ids"),
        ({"tokens": [1.5]}, "tokens: expected a list of token ids"),
        ({"tokens": [-1]}, "tokens: expected the model's token ids"),
    ],
    "/apply-template": [
        ({"messages": []}, "messages: expected"),
    ],
}  # fmt: skip
REFUSED["/v1/messages/count_tokens"] = REFUSED["/v1/messages"]


def told(path: str, body: dict[str, Any]) -> str:
    """The message of an error, which has the shape of its API."""
    error = body["error"]
    if path.startswith("/api/"):
        assert list(body) == ["error"]
        return str(error)
    if path.startswith("/v1/messages"):
        assert (body["type"], error["type"]) == ("error", "invalid_request_error")
    elif path == "/completion":
        assert (error["code"], error["type"]) == (400, "invalid_request_error")
    else:
        assert error.keys() == {"message", "type", "param", "code"}
    return str(error["message"])


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [(path, *row) for path, rows in REFUSED.items() for row in rows],
)
def test_it_says_what_was_expected(
    server: Server, path: str, fields: dict[str, Any], message: str
) -> None:
    answer = server.post(path, {"model": "tiny", **COMMON.get(path, {}), **fields})
    assert answer.status_code == 400, answer.text
    assert message in told(path, answer.json())


def test_a_client_is_told_which_field(server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="at most 128") as refused:
        server.client().chat.completions.create(model="tiny", messages=HELLO, tools=TOOLS * 65)
    assert refused.value.param == "tools"
