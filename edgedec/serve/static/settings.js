// What the reader has set: kept in this browser, but for the key, which the tab forgets.

import { $ } from "./dom.js";
import { browser, parsed, tab } from "./storage.js";

const ENTRY = "edgedec.settings";
const KEPT = ["mode", "think", "temperature", "tokens", "system", "marks"];
const TEXT_TOKENS = 256;
// A folder of the package; its pair continues code, and has a chat template only to be tried.
const DEMO = "demo";

const kept = {};
let model = { id: "", chat: true, sampling: null };

// `sampling`: of its answers; null where the model neither chats nor asks for any.
export function setModel({ id, edgedec: { chat, sampling } }) {
  model = { id, chat, sampling: sampling ?? null };
  $("mode-label").hidden = !chat;
  $("temperature").placeholder = String(sampling?.temperature ?? 0);
}

// The model that requests name.
export function modelId() {
  return model.id;
}

export function continuesCode() {
  return model.id === DEMO;
}

// Whether messages are sent; otherwise each text is continued.
export function isChat() {
  const mode = $("mode").value;
  return model.chat && (mode ? mode === "chat" : !continuesCode());
}

// Whether drafted text is marked; in a text that is not formatted it is unless told otherwise.
export function marksDrafts() {
  return $("marks").value ? $("marks").value === "yes" : !isChat();
}

// An answer goes on to its end; a text that is continued may have none.
export function tokenLimit(chat) {
  return Number($("tokens").value) || (chat ? null : TEXT_TOKENS);
}

// Unless told otherwise an answer is sampled as the model asks, and everything else is greedy.
function temperature(chat) {
  const given = $("temperature").value;
  if (given !== "") return { temperature: Number(given) };
  return chat && model.sampling ? {} : { temperature: 0 };
}

export function isGreedy(chat) {
  return (temperature(chat).temperature ?? model.sampling.temperature) === 0;
}

export function options(chat) {
  const [seed, most, think] = [$("seed").value, tokenLimit(chat), $("think").value];
  return {
    ...temperature(chat),
    ...(most && { max_tokens: most }),
    ...(seed !== "" && { seed: Number(seed) }),
    ...($("drafter").value && { edgedec: { drafter: $("drafter").value } }),
    ...(chat && think && { chat_template_kwargs: { enable_thinking: think === "yes" } }),
  };
}

// Those of a new conversation; one that is opened brings its own.
export function resetInstructions() {
  $("system").value = kept.system ?? "";
}

export function forgetInstructions() {
  keep("system", "");
  resetInstructions();
}

function keep(id, value) {
  if (!KEPT.includes(id)) return;
  kept[id] = value;
  browser.put(ENTRY, JSON.stringify(kept));
}

function restore() {
  const given = parsed(ENTRY, Object) ?? {};
  for (const id of KEPT) if (typeof given[id] === "string") kept[id] = $(id).value = given[id];
}

// Calls back with the id of what was changed.
export function start(onChange) {
  restore();
  $("key").value = tab.get("key") || "";
  $("settings").addEventListener("change", (event) => {
    if (event.target.id === "key") tab.put("key", $("key").value);
    else keep(event.target.id, event.target.value);
    onChange(event.target.id);
  });
}
