// Conversations in this browser: one entry of localStorage each. The oldest give way at a limit.

import { browser, parsed } from "./storage.js";

const PREFIX = "edgedec.talk.";
// localStorage holds some 5 million characters, of which this leaves half.
export const LIMITS = { talks: 50, chars: 2_500_000 };

function text(value) {
  return typeof value === "string" ? value : "";
}

function turn(given) {
  const role = given.role === "user" ? "user" : "assistant";
  const one = { role, content: text(given.content) };
  for (const name of ["thinking", "note", "figures"]) {
    if (text(given[name])) one[name] = given[name];
  }
  return one;
}

// Returns a conversation as the page expects it; null if the entry is none.
function read(key) {
  return parsed(key, (given) => {
    const [id, changed] = [key.slice(PREFIX.length), Number(given.changed) || 0];
    const talk = { id, changed, title: text(given.title), system: text(given.system) };
    return { ...talk, chat: given.chat !== false, turns: given.turns.map(turn) };
  });
}

function keys() {
  return browser.keys().filter((key) => key.startsWith(PREFIX));
}

// Returns all conversations, the newest first.
export function list() {
  const found = keys().map(read).filter(Boolean);
  return found.sort((one, other) => other.changed - one.changed);
}

export function load(id) {
  return read(PREFIX + id);
}

export function remove(id) {
  browser.drop(PREFIX + id);
}

export function removeAll() {
  keys().forEach(browser.drop);
}

// Keeps a conversation, if need be in place of the oldest; returns whether there is room.
export function save(talk) {
  const { id, ...kept } = talk;
  const written = JSON.stringify(kept);
  if (written.length > LIMITS.chars) return false;
  const others = list().filter((one) => one.id !== id);
  let room = LIMITS.chars - written.length;
  const most = others.findIndex((one, place) => {
    room -= browser.get(PREFIX + one.id).length;
    return place + 1 >= LIMITS.talks || room < 0;
  });
  if (most >= 0) others.splice(most).forEach((one) => remove(one.id));
  for (;;) {
    if (browser.put(PREFIX + id, written)) return true;
    if (!others.length) return false;
    remove(others.pop().id);
  }
}

export function newId() {
  return `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
}
