// The page: its tabs, its forms, and what it knows of the server.

import { answer, inWords } from "./api.js";
import * as busy from "./busy.js";
import * as chat from "./chat.js";
import { $, copyFrom, megabytes } from "./dom.js";
import * as plan from "./plan.js";
import { race } from "./race.js";
import * as samples from "./samples.js";
import * as settings from "./settings.js";
import { tab } from "./storage.js";
import * as talks from "./talks.js";

const LOOK_EVERY_MS = 3000;
const CHOICE = "edgedec.model";
const TABS = ["chat", "race", "about"];
const view = { model: null, away: false };
let changing = null; // while another model is being read

// -- the server's state ----------------------------------------------------------------------

// Of several models the one that was chosen in this tab, else one that is loaded, else the first.
async function readModel() {
  const wanted = tab.get(CHOICE);
  const all = (await (await answer("/v1/models")).json()).data;
  const is = (chosen) => ({ id }) => id === chosen;
  const one = all.find(is(wanted)) ?? all.find(({ edgedec }) => edgedec.loaded) ?? all[0];
  // What is not loaded has facts only where it is asked for alone.
  const found = one.edgedec.plan ? one : await (await answer(`/v1/models/${encodeURIComponent(one.id)}`)).json();
  if (tab.get(CHOICE) !== wanted) return; // another was chosen meanwhile, and is being read
  const known = view.model?.id;
  view.model = found;
  const { id, edgedec: own } = view.model;
  $("choice").hidden = all.length < 2;
  $("choice").replaceChildren(...all.map((other) => new Option(other.id, other.id, false, other.id === id)));
  const how = own.plan ? `drafted by ${own.plan.drafter}` : "loaded at the first message";
  $("model").textContent = [all.length < 2 && id, how, own.max_context && `${own.max_context} tokens`].filter(Boolean).join(", ");
  settings.setModel(view.model);
  plan.show(view.model);
  if (known === id) return;
  begin();
  if (known) return chat.rename(id);
  chat.start(id, talks.show);
  talks.start();
}

async function look() {
  try {
    if (!view.model || view.away) await readModel();
    const status = await (await answer("/edgedec/status")).json();
    if (status.loaded.includes(view.model.id) !== Boolean(view.model.edgedec.plan)) await readModel();
    const granted = status.memory_granted_bytes;
    const most = granted ? ` of ${megabytes(granted)}` : "";
    $("memory").textContent = `The server uses ${megabytes(status.memory_bytes)}${most} of memory.`;
    $("state").textContent = "";
    view.away = false;
  } catch (error) {
    view.away = true;
    $("state").textContent = error instanceof TypeError ? "the server is away" : inWords(error);
  }
}

// What depends on whether the model chats or continues a text.
function begin() {
  const chats = settings.isChat();
  $("prompt-label").textContent = chats ? "Message" : "Text to continue";
  for (const id of ["system-label", "think-label"]) $(id).hidden = !chats;
  $("race-prompt").value ||= samples.raceExample();
  samples.show(use);
}

// -- controls --------------------------------------------------------------------------------

function show(name) {
  for (const one of TABS) {
    const here = one === name;
    $(one).hidden = !here;
    $(`tab-${one}`).setAttribute("aria-selected", String(here));
    $(`tab-${one}`).tabIndex = here ? 0 : -1;
  }
}

async function use(text) {
  if (busy.isBusy() || !view.model || !text.trim()) return;
  $("prompt").value = "";
  await chat.send(text);
}

function changed(id) {
  if (id === "key") look();
  if (!view.model) return;
  if (id === "marks") chat.showMarks();
  if (id !== "mode") return;
  $("race-prompt").value = "";
  begin();
  chat.fresh();
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
$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  await changing; // the message is for the model that was chosen
  use($("prompt").value);
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});
$("choice").addEventListener("change", () => {
  tab.put(CHOICE, $("choice").value);
  changing = readModel().catch(look);
});
$("start").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!busy.isBusy() && view.model) race($("race-prompt").value);
});
for (const id of ["stop", "halt"]) $(id).addEventListener("click", busy.stop);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") busy.stop();
});
$("log").addEventListener("click", ({ target }) => {
  if (target.matches("button.copy")) copyFrom(target, target.closest(".code").querySelector("pre").textContent);
});
settings.start(changed);
look();
setInterval(() => document.hidden || look(), LOOK_EVERY_MS);
