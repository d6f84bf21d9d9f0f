// Requests to the server that the page came from, and to nothing else.

import { $ } from "./dom.js";
import { modelId } from "./settings.js";

// A balancer sends requests of one session to one server, which has their beginning in its cache.
function headers(session) {
  const key = $("key").value;
  return {
    "Content-Type": "application/json",
    ...(key && { Authorization: `Bearer ${key}` }),
    ...(session && { "X-Session-Id": session }),
  };
}

export async function answer(path, body, { signal, session } = {}) {
  const sent = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const found = await fetch(path, { ...sent, headers: headers(session), signal });
  if (found.ok) return found;
  let told = { message: `${found.status} ${found.statusText}` };
  try { told = (await found.json()).error; } catch { /* not the API's shape */ }
  if (found.status === 401) {
    $("settings").open = true;
    $("key").focus();
  }
  throw Object.assign(new Error(told.message), { code: told.code });
}

export function inWords(error) {
  if (error instanceof TypeError) return "the server cannot be reached";
  const full = error.code === "context_length_exceeded";
  return full ? `${error.message}, or begin a new conversation` : error.message;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the connection ended before the text did");
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}

// Splits a text by who wrote it: [text, source] each. Text of no piece counts as the target's.
export function attributed(text, pieces) {
  const runs = [];
  let rest = text;
  for (const [piece, source] of pieces) {
    if (!piece || !rest.startsWith(piece)) continue;
    runs.push([piece, source]);
    rest = rest.slice(piece.length);
  }
  if (rest) runs.push([rest, "target"]);
  return runs;
}

// Decodes one text. Calls back with { text, thinking, pieces } as they come, pieces being
// [text, source] of each token; returns the server's figures. `options`: signal, session.
export async function decode(request, onDelta, options) {
  const chat = "messages" in request;
  const path = chat ? "/v1/chat/completions" : "/v1/completions";
  const body = { model: modelId(), stream: true, ...request, edgedec: { pieces: true, ...request.edgedec } };
  let figures = null;
  for await (const chunk of events(await answer(path, body, options))) {
    const [choice] = chunk.choices;
    if (!choice) continue;
    const ours = chunk.edgedec || {};
    if (choice.finish_reason) figures = ours;
    const delta = chat ? choice.delta : { content: choice.text };
    const [text, thinking] = [delta.content || "", delta.reasoning_content || ""];
    const pieces = ours.pieces || [];
    if (text || thinking || pieces.length) onDelta({ text, thinking, pieces });
  }
  return figures;
}
