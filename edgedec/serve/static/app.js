"use strict";
// Talks to the server it came from, and to nothing else. Text is only ever set as text.

const $ = (id) => document.getElementById(id);
const TEXT_TOKENS = 256;
const view = { model: null, talk: [], running: null, away: false };

function headers() {
  const key = $("key").value || sessionStorage.getItem("key") || "";
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

async function answer(path, body, signal) {
  const options = body
    ? { method: "POST", body: JSON.stringify(body), headers: headers(), signal }
    : { headers: headers(), signal };
  const found = await fetch(path, options);
  if (found.ok) return found;
  let message = `${found.status} ${found.statusText}`;
  try { message = (await found.json()).error.message; } catch { /* not the API's shape */ }
  if (found.status === 401) {
    document.querySelector("details").open = true;
    $("key").focus();
  }
  throw new Error(message);
}

// -- streams ---------------------------------------------------------------------------------

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

// Decodes one text; calls back with [text, source] pieces, returns the figures.
async function decode(request, onPieces, signal) {
  const chat = "messages" in request;
  const path = chat ? "/v1/chat/completions" : "/v1/completions";
  const body = { model: view.model.id, stream: true, ...request };
  body.edgedec = { pieces: true, ...request.edgedec };
  let figures = null;
  for await (const chunk of events(await answer(path, body, signal))) {
    const ours = chunk.edgedec || {};
    if (ours.pieces) {
      onPieces(ours.pieces);
    } else if (ours.draft) {
      figures = ours;
    } else if (chunk.choices.length) {
      const [choice] = chunk.choices;
      const text = chat ? choice.delta.content : choice.text;
      if (text) onPieces([[text, "target"]], true);
    }
  }
  return figures;
}

function append(place, pieces) {
  for (const [text, source] of pieces) {
    if (!text) continue;
    const last = place.lastElementChild;
    if (last && last.className === source) {
      last.textContent += text;
    } else {
      const span = document.createElement("span");
      span.className = source;
      span.textContent = text;
      place.append(span);
    }
  }
}

// -- chat ------------------------------------------------------------------------------------

function turn(role, name) {
  const row = document.createElement("div");
  row.className = `turn ${role}`;
  const who = document.createElement("b");
  who.textContent = name;
  const text = document.createElement("span");
  row.append(who, text);
  $("log").append(row);
  row.scrollIntoView({ block: "end" });
  return text;
}

// An answer goes on to its end; a text without a chat template may have none.
function limit(chat) {
  const tokens = Number($("tokens").value) || (chat ? 0 : TEXT_TOKENS);
  return tokens ? { max_tokens: tokens } : {};
}

function options(chat) {
  const seed = $("seed").value;
  return {
    temperature: Number($("temperature").value),
    ...limit(chat),
    ...(seed !== "" && { seed: Number(seed) }),
    ...($("draft").value && { edgedec: { draft: $("draft").value } }),
  };
}

function showFigures(count, seconds, drafted) {
  if (seconds > 0) $("speed").textContent = (count / seconds).toFixed(1);
  $("accepted").textContent = `${drafted} of ${count} tokens`;
}

function busy(controller) {
  view.running = controller;
  for (const id of ["send", "go", "reset"]) $(id).disabled = Boolean(controller);
  for (const id of ["stop", "halt"]) $(id).disabled = !controller;
}

async function ask(text) {
  const chat = view.model.edgedec.chat;
  turn("user", chat ? "You" : "Prompt").textContent = text;
  const place = turn("assistant", view.model.id);
  const controller = new AbortController();
  busy(controller);
  let said = "", count = 0, drafted = 0, first = 0;
  const take = (pieces, untold) => {
    first = first || performance.now();
    append(place, pieces);
    said += pieces.map(([piece]) => piece).join("");
    if (!untold) {
      count += pieces.length;
      drafted += pieces.filter(([, source]) => source === "draft").length;
      showFigures(count, (performance.now() - first) / 1000, drafted);
    }
    place.scrollIntoView({ block: "end" });
  };
  const talk = [...view.talk, { role: "user", content: text }];
  const system = $("system").value;
  const messages = system ? [{ role: "system", content: system }, ...talk] : talk;
  try {
    const request = chat ? { messages } : { prompt: text };
    const figures = await decode({ ...request, ...options(chat) }, take, controller.signal);
    if (figures) {
      $("speed").textContent = figures.tokens_per_second.toFixed(1);
      $("accepted").textContent = `${figures.accepted} of ${figures.drafted} drafted`;
      $("efficiency").textContent = figures.block_efficiency.toFixed(2);
      if (figures.finish_reason === "length") sayCut(place, count, limit(chat).max_tokens);
    }
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  } finally {
    if (said) view.talk = [...talk, { role: "assistant", content: said }];
    else $("prompt").value = $("prompt").value || text;
    busy(null);
    $("prompt").focus();
  }
}

function sayCut(place, count, most) {
  const note = document.createElement("small");
  note.className = "cut";
  note.textContent = count >= most
    ? `Cut at ${count} tokens: Settings has a larger number of tokens.`
    : "Cut where the context ends: New begins another conversation.";
  place.parentElement.append(note);
}

function complain(error) {
  const text = turn("error", "Error");
  text.parentElement.setAttribute("role", "alert");
  text.textContent = error instanceof TypeError ? "the server cannot be reached" : error.message;
  look();
}

// -- race ------------------------------------------------------------------------------------

async function measured(prompt, draft, signal) {
  const chat = view.model.edgedec.chat;
  const request = chat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
  const rounds = [];
  const began = performance.now();
  const figures = await decode(
    { ...request, temperature: 0, max_tokens: TEXT_TOKENS, ...limit(chat), ...(draft && { edgedec: { draft } }) },
    (pieces) => rounds.push({ at: performance.now() - began, pieces }), signal,
  );
  const text = rounds.map((round) => round.pieces.map(([piece]) => piece).join("")).join("");
  return { rounds, figures, text, seconds: (performance.now() - began) / 1000 };
}

function replay(run, place, pace, signal) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    let next = 0, count = 0;
    const step = () => {
      if (signal.aborted) return reject(new DOMException("stopped", "AbortError"));
      const now = performance.now() - began;
      while (next < run.rounds.length && run.rounds[next].at <= now) {
        append(place, run.rounds[next].pieces);
        count += run.rounds[next++].pieces.length;
      }
      pace.textContent = `${count} tokens, ${(Math.min(now / 1000, run.seconds)).toFixed(1)} s`;
      if (next < run.rounds.length) requestAnimationFrame(step);
      else resolve();
    };
    step();
  });
}

async function race(prompt) {
  const controller = new AbortController();
  const { signal } = controller;
  busy(controller);
  for (const id of ["plain", "fast", "plain-pace", "fast-pace"]) $(id).replaceChildren();
  try {
    // The prompt is read once before, so that neither run has the other's advantage.
    $("verdict").textContent = "reading the prompt …";
    const chat = view.model.edgedec.chat;
    const request = chat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
    await decode({ ...request, max_tokens: 1, temperature: 0 }, () => {}, signal);
    $("verdict").textContent = "decoding plainly …";
    const plain = await measured(prompt, "none", signal);
    $("verdict").textContent = "decoding with drafts …";
    const fast = await measured(prompt, "", signal);
    $("verdict").textContent = "";
    await Promise.all([
      replay(plain, $("plain"), $("plain-pace"), signal),
      replay(fast, $("fast"), $("fast-pace"), signal),
    ]);
    const ratio = fast.figures.tokens_per_second / plain.figures.tokens_per_second;
    const same = plain.text === fast.text ? "the same text" : "texts that differ at a near-tie";
    $("verdict").textContent = ratio
      ? `${ratio.toFixed(2)} times the speed of plain decoding, ${same}`
      : `too short to compare, ${same}`;
  } catch (error) {
    $("verdict").textContent = error.name === "AbortError" ? "stopped" : error.message;
  } finally {
    busy(null);
  }
}

// -- the server's state ----------------------------------------------------------------------

function fact(list, name, value) {
  const row = document.createElement("div");
  const term = document.createElement("dt");
  const text = document.createElement("dd");
  term.textContent = name.replaceAll("_", " ");
  text.textContent = String(value);
  row.append(term, text);
  list.append(row);
}

async function readModel() {
  view.model = (await (await answer("/v1/models")).json()).data[0];
  const { plan, notes, max_context: context, chat } = view.model.edgedec;
  $("model").textContent = `${view.model.id}, drafted by ${plan.drafter}, ${context} tokens`;
  $("prompt-label").textContent = chat ? "Message" : "Text to continue (this model has no chat template)";
  $("system-label").hidden = !chat;
  $("reason").textContent = plan.plan
    ? `Follows the plan ${plan.plan}, made on ${plan.plan_made_on}.`
    : `No plan is followed: ${plan.no_plan}.`;
  $("plan").replaceChildren();
  for (const [name, value] of Object.entries(plan)) {
    if (value !== null && !["plan", "plan_made_on", "no_plan"].includes(name)) fact($("plan"), name, value);
  }
  for (const note of notes) fact($("plan"), "note", note);
}

function megabytes(bytes) {
  return `${Math.round(bytes / 1e6)} MB`;
}

async function look() {
  try {
    if (!view.model || view.away) await readModel();
    const status = await (await answer("/edgedec/status")).json();
    const granted = status.memory_granted_bytes;
    $("memory").textContent = megabytes(status.memory_bytes) + (granted ? ` of ${megabytes(granted)}` : "");
    $("state").textContent = "";
    view.away = false;
  } catch (error) {
    view.away = true;
    $("state").textContent = error instanceof TypeError ? "the server is away" : error.message;
  }
}

// -- controls --------------------------------------------------------------------------------

const TABS = ["chat", "race", "about"];

function show(name) {
  for (const one of TABS) {
    const here = one === name;
    $(one).hidden = !here;
    $(`tab-${one}`).setAttribute("aria-selected", String(here));
    $(`tab-${one}`).tabIndex = here ? 0 : -1;
  }
}

for (const [place, name] of TABS.entries()) {
  $(`tab-${name}`).addEventListener("click", () => show(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: TABS.length - 1 }[event.key];
    if (!by) return;
    const next = TABS[(place + by) % TABS.length];
    show(next);
    $(`tab-${next}`).focus();
  });
}
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("prompt").value;
  if (view.running || !view.model || !text.trim()) return;
  $("prompt").value = "";
  ask(text);
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});
$("start").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!view.running && view.model) race($("race-prompt").value);
});
for (const id of ["stop", "halt"]) $(id).addEventListener("click", () => view.running && view.running.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && view.running) view.running.abort();
});
$("reset").addEventListener("click", () => {
  view.talk = [];
  $("log").replaceChildren();
  $("prompt").focus();
});
$("colours").addEventListener("change", () => {
  $("log").classList.toggle("coloured", $("colours").checked);
  $("legend").hidden = !$("colours").checked;
});
$("key").value = sessionStorage.getItem("key") || "";
$("key").addEventListener("change", () => {
  sessionStorage.setItem("key", $("key").value);
  look();
});
$("log").classList.add("coloured");
look();
setInterval(look, 3000);
