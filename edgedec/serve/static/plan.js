// How the model is decoded, as three sentences; all values below them.

import { $, make, megabytes } from "./dom.js";

// How the server says that a plan could be made.
const UNMADE = "none was made";
const DRAFTERS = {
  none: "Nothing drafts: the target decodes token by token",
  model: "The draft model proposes tokens",
  parallel: "The draft model proposes several tokens in one pass",
  tree: "The draft model proposes a tree of tokens",
  strings: "The draft model proposes text, in a vocabulary of its own",
  hybrid: "The draft model proposes tokens, or what followed the same words earlier in this text or another",
  adaptive: "The draft model and other ways to draft take turns, by what each gains",
  suffix: "Tokens that followed the same words in earlier texts are proposed again",
  lookup: "Tokens that followed the same words earlier in the text are proposed again",
  recycle: "Tokens that the target found likely before are proposed again",
  text: "Tokens that followed the same words earlier in this text or another, or that the target found likely before, are proposed again",
  head: "A head that reads the target's states proposes tokens",
  headed: "A head that reads the target's states proposes tokens, or what followed the same words earlier in this text or another",
};

function drafting({ drafter, draft_length: length, lossless, accept }) {
  const who = DRAFTERS[drafter] ?? `The drafter ${drafter} proposes tokens`;
  if (drafter === "none") return `${who}.`;
  const many = length === "auto" ? "as many a round as pay off" : `${length} a round`;
  const kept = lossless
    ? "the target keeps those that it would have written"
    : `the rule ${accept} may keep some that the target would not have written`;
  return `${who}, ${many}, and ${kept}.`;
}

function place(plan) {
  const device = plan.provider || plan.device;
  const threads = plan.threads === 1 ? "1 thread" : `${plan.threads} threads`;
  const where = device ? `on ${device}` : `on ${threads} of the processor`;
  const memory = plan.kv_bytes ? `, whose cache takes up to ${megabytes(plan.kv_bytes)}` : "";
  const format = plan.format ? `as ${plan.format.toUpperCase()} ` : "";
  return `It runs ${format}${where}, with a context of ${plan.max_context} tokens${memory}.`;
}

// `planning`: the command that makes a plan, "" if the server does not say.
function reason({ plan, plan_made_on: made, no_plan: why = "" }, planning) {
  if (plan) return `This follows the plan ${plan}, made on ${made}.`;
  const how = planning || "edgedec plan with the model as the server was given it";
  const help = why.startsWith(UNMADE) ? `. To measure what is fastest here: ${how}` : ".";
  return `No plan is followed${why && ` (${why})`}${help}`;
}

export function sentences(plan, planning) {
  return [drafting(plan), place(plan), reason(plan, planning)];
}

function fact(name, value) {
  return make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, String(value)));
}

export function show({ edgedec: { plan, planning, notes } }) {
  const said = plan ? sentences(plan, planning) : ["This model is not loaded: a message to it loads it."];
  $("sentences").replaceChildren(...said.map((one) => make("p", {}, one)));
  if (!plan) return $("plan").replaceChildren();
  const told = Object.entries(plan).filter(([, value]) => value !== null);
  const facts = [...told, ...notes.map((note) => ["note", note])];
  $("plan").replaceChildren(...facts.map(([name, value]) => fact(name, value)));
}
