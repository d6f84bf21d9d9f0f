// One text at a time: what is being written, and what may be pressed meanwhile.

import { $ } from "./dom.js";

let running = null;

export function isBusy() {
  return running !== null;
}

// Begins a run and returns the signal that ends it.
export function begin() {
  running = new AbortController();
  mark();
  return running.signal;
}

export function end() {
  running = null;
  mark();
}

export function stop() {
  running?.abort();
}

function mark() {
  const busy = isBusy();
  document.body.toggleAttribute("data-busy", busy);
  for (const id of ["send", "go", "new", "choice"]) $(id).disabled = busy;
  for (const id of ["stop", "halt"]) $(id).disabled = !busy;
  for (const id of ["talks", "settings"]) $(id).inert = busy;
  // Read out as a whole at its end, not piece by piece.
  $("log").setAttribute("aria-busy", String(busy));
}
