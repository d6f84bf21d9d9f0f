// A conversation: asking, stopping, editing, asking again.

import { decode, inWords } from "./api.js";
import * as busy from "./busy.js";
import { $, announce, time } from "./dom.js";
import * as settings from "./settings.js";
import { tab } from "./storage.js";
import * as store from "./store.js";
import { AnswerView, userRow } from "./turns.js";

const OPEN = "edgedec.open";
const SAVED_EVERY_MS = 2000;
let name = "";
let talk = null;
let views = new Map(); // of answers, by turn
let onChange = () => {};

export function current() {
  return talk;
}

function formatted() {
  return talk.chat && !settings.marksDrafts();
}

// -- what is shown ---------------------------------------------------------------------------

function follow() {
  const log = $("log");
  if (log.dataset.follow !== "no") log.scrollTop = log.scrollHeight;
}

function row(turn) {
  const place = talk.turns.indexOf(turn);
  if (turn.role === "user") {
    return userRow(turn, talk.chat ? "You" : "Prompt", (text) => edit(turn, text));
  }
  const view = new AnswerView(turn, name, {
    formatted: formatted(),
    onRegenerate: () => regenerate(place),
    onGoOn: () => goOn(turn),
    onRender: follow,
  });
  view.more.hidden = talk.chat;
  views.set(turn, view);
  return view.element;
}

function show(shownTalk) {
  talk = shownTalk;
  if (talk.turns.length) tab.put(OPEN, talk.id);
  else tab.drop(OPEN);
  views = new Map();
  $("log").dataset.follow = "yes";
  $("log").replaceChildren(...talk.turns.map(row));
  mark();
  complain("");
  $("empty").hidden = talk.turns.length > 0;
  follow();
}

function mark() {
  const marks = settings.marksDrafts();
  $("log").classList.toggle("coloured", marks);
  $("legend").hidden = !marks;
}

export function showMarks() {
  mark();
  for (const view of views.values()) view.show(formatted());
}

function complain(message) {
  $("problem").textContent = message;
}

// -- which one -------------------------------------------------------------------------------

function keep() {
  if (talk.turns.length) {
    talk.changed = Date.now();
    $("unkept").hidden = store.save(talk);
  }
  onChange();
}

export function fresh() {
  settings.resetInstructions();
  show({ id: store.newId(), title: "", system: "", chat: settings.isChat(), turns: [] });
  onChange();
}

export function open(id) {
  const found = store.load(id);
  if (!found) return fresh();
  $("system").value = found.system;
  show(found);
  onChange();
}

// Answers are this model's from now on.
export function rename(modelName) {
  name = modelName;
  if (!talk.turns.length) fresh();
}

export function start(modelName, changed) {
  name = modelName;
  onChange = changed;
  open(tab.get(OPEN));
  $("log").addEventListener("scroll", () => {
    const log = $("log");
    const below = log.scrollHeight - log.scrollTop - log.clientHeight;
    log.dataset.follow = below < 60 ? "yes" : "no";
  });
  new ResizeObserver(follow).observe($("log"));
  addEventListener("pagehide", () => busy.isBusy() && keep());
}

// -- asking ----------------------------------------------------------------------------------

export async function send(text) {
  await write([...talk.turns, { role: "user", content: text }], { typed: text });
}

// Another text in place of a message; where answers to later ones would be lost, in a copy.
async function edit(turn, text) {
  if (busy.isBusy()) return;
  const place = talk.turns.indexOf(turn);
  const copy = place < talk.turns.findLastIndex((one) => one.role === "user");
  await write([...talk.turns.slice(0, place), { role: "user", content: text }], { typed: text, copy });
}

async function regenerate(place) {
  if (busy.isBusy()) return;
  const before = talk.turns[place];
  await write(talk.turns.slice(0, place));
  const now = talk.turns.at(-1);
  if (now !== before && now.content === before.content && settings.isGreedy(talk.chat)) {
    now.note = "The same answer as before: at temperature 0 it always is. Settings has the temperature.";
    views.get(now).finish();
  }
}

async function goOn(turn) {
  if (!busy.isBusy()) complain(await decodeInto(turn));
}

// Asks for an answer to turns; without one everything is as it was, and `typed` is to be sent again.
async function write(turns, { typed = "", copy = false } = {}) {
  const before = talk;
  const turn = { role: "assistant", content: "" };
  const title = turns[0].content.trim().replace(/\s+/g, " ").slice(0, 80);
  const id = copy ? store.newId() : talk.id;
  show({ ...talk, id, title, system: $("system").value, turns: [...turns, turn] });
  const problem = await decodeInto(turn);
  if (!turn.content && !turn.thinking) {
    store.remove(id);
    show(before);
    keep();
    $("prompt").value ||= typed;
  }
  complain(problem);
}

function request(turn) {
  const before = talk.turns.slice(0, talk.turns.indexOf(turn));
  if (!talk.chat) return { prompt: before.at(-1).content + turn.content };
  const messages = before.map(({ role, content }) => ({ role, content }));
  return { messages: talk.system ? [{ role: "system", content: talk.system }, ...messages] : messages };
}

// Returns what went wrong, in words; "" if nothing did.
async function decodeInto(turn) {
  const [view, signal, body] = [views.get(turn), busy.begin(), request(turn)];
  const seen = { began: performance.now(), tokens: 0, saved: performance.now() };
  let problem = "";
  keep();
  turn.note = turn.figures = "";
  view.finish();
  announce("Decoding");
  try {
    const figures = await decode({ ...body, ...settings.options(talk.chat) }, (delta) => {
      view.push(delta);
      seen.tokens += delta.pieces.length;
      if (performance.now() - seen.saved < SAVED_EVERY_MS) return;
      seen.saved = performance.now();
      keep();
    }, { signal, session: talk.id });
    turn.figures = inFigures(figures, seen.tokens, performance.now() - seen.began);
    turn.note = cut(figures, seen.tokens);
  } catch (error) {
    if (error.name === "AbortError") turn.note = "Stopped.";
    else problem = inWords(error);
  } finally {
    busy.end();
    view.finish();
    keep();
    announce(turn.figures ? `Answered: ${turn.figures}` : "Stopped");
    focusPrompt();
  }
  return problem;
}

// Unless the reader is elsewhere, or has a keyboard on the screen, which would open.
function focusPrompt() {
  const elsewhere = document.activeElement !== document.body;
  if (!elsewhere && matchMedia("(pointer: fine)").matches) $("prompt").focus();
}

function inFigures(figures, tokens, milliseconds) {
  const parts = [`${tokens} tokens in ${time(milliseconds)}`];
  if (tokens) parts.push(`${((tokens * 1000) / milliseconds).toFixed(0)} tokens/s`);
  if (figures.drafted) parts.push(`${figures.accepted} of ${figures.drafted} drafted tokens accepted`);
  return parts.join(", ");
}

function cut(figures, tokens) {
  if (figures.finish_reason !== "length") return "";
  const most = settings.tokenLimit(talk.chat);
  if (!most || tokens < most) return "Cut where the context ends: New begins another conversation.";
  const more = talk.chat ? "Settings has a larger number of tokens" : "Go on continues it";
  return `Cut at ${tokens} tokens: ${more}.`;
}
