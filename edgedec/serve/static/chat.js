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

function shown(turn) {
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

export function showAll() {
  views = new Map();
  $("log").dataset.follow = "yes";
  $("log").replaceChildren(...talk.turns.map(shown));
  showMarks();
  complain("");
  $("empty").hidden = talk.turns.length > 0;
  follow();
}

export function showMarks() {
  const marks = settings.marksDrafts();
  $("log").classList.toggle("coloured", marks);
  $("legend").hidden = !marks;
  for (const view of views.values()) view.show(formatted());
}

export function complain(message) {
  $("problem").textContent = message;
}

// -- which one -------------------------------------------------------------------------------

function keep() {
  if (!talk.turns.length) return;
  talk.changed = Date.now();
  const kept = store.save(talk);
  $("unkept").hidden = kept;
  onChange();
}

export function fresh() {
  talk = { id: store.newId(), title: "", system: "", chat: settings.isChat(), turns: [] };
  tab.drop(OPEN);
  settings.resetInstructions();
  showAll();
  onChange();
}

export function open(id) {
  const found = store.load(id);
  if (!found) return fresh();
  talk = found;
  $("system").value = talk.system;
  tab.put(OPEN, id);
  showAll();
  onChange();
}

export function start(modelName, changed) {
  name = modelName;
  onChange = changed;
  const last = tab.get(OPEN);
  if (last) open(last);
  else fresh();
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
  if (!talk.turns.length) {
    talk.title = text.trim().replace(/\s+/g, " ").slice(0, 80);
    tab.put(OPEN, talk.id);
  }
  await write([...talk.turns, { role: "user", content: text }], text);
}

// Another text in place of a message; where answers to later ones would be lost, in a copy.
async function edit(turn, text) {
  if (busy.isBusy()) return;
  const place = talk.turns.indexOf(turn);
  const earlier = talk.turns.slice(0, place);
  if (place < talk.turns.findLastIndex((one) => one.role === "user")) {
    talk = { ...talk, id: store.newId(), turns: earlier };
    tab.put(OPEN, talk.id);
  }
  await write([...earlier, { role: "user", content: text }], text);
}

async function regenerate(place) {
  if (busy.isBusy()) return;
  const before = talk.turns[place].content;
  await write(talk.turns.slice(0, place));
  const now = talk.turns.at(-1);
  if (now.content === before && settings.isGreedy(talk.chat)) {
    now.note = "The same answer as before: at temperature 0 it always is. Settings has the temperature.";
    views.get(now).finish();
  }
}

async function goOn(turn) {
  if (!busy.isBusy()) await decodeInto(turn);
}

// Asks for an answer to turns; without one everything is as it was, and `typed` is to be sent again.
async function write(turns, typed = "") {
  const before = talk.turns;
  const turn = { role: "assistant", content: "" };
  talk.turns = [...turns, turn];
  talk.system = $("system").value;
  showAll();
  const problem = await decodeInto(turn);
  if (!turn.content && !turn.thinking) {
    talk.turns = before;
    showAll();
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
    }, signal);
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
    $("prompt").focus();
  }
  return problem;
}

function inFigures(figures, tokens, milliseconds) {
  const parts = [`${tokens} tokens in ${time(milliseconds)}`];
  if (figures.tokens_per_second) parts.push(`${figures.tokens_per_second.toFixed(0)} tokens/s`);
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
