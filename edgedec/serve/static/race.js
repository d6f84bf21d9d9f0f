// The same text decoded plainly and with drafts, shown side by side.

import { attributed, decode, inWords } from "./api.js";
import * as busy from "./busy.js";
import { $, time } from "./dom.js";
import * as settings from "./settings.js";
import { newId } from "./store.js";
import { appendRuns } from "./turns.js";

// Fewer tokens do not say how much faster drafts are.
const ENOUGH = 64;
// A race that is over sooner is shown in slow motion.
const SHOWN_MS = 4000;
const [SHORT_MS, MOST_RUNS] = [3000, 3];
// Runs of one kind that differ by more say that other programs use the processor.
const [UNEVEN, UNEVEN_MS] = [1.3, 20];

// The text comes several times: no run may draft from one before it.
function request(prompt, most, drafter) {
  const text = settings.isChat() ? { messages: [{ role: "user", content: prompt }] } : { prompt };
  return { ...text, temperature: 0, max_tokens: most, edgedec: { keep: false, ...(drafter && { drafter }) } };
}

async function measured(prompt, drafter, options) {
  const rounds = [];
  let tokens = 0, drafted = 0, written = "";
  const began = performance.now();
  await decode(request(prompt, settings.tokenLimit(false), drafter), ({ text, thinking, pieces }) => {
    drafted += pieces.filter(([, source]) => source === "draft").length;
    tokens += pieces.length;
    written += thinking + text;
    const runs = attributed(thinking + text, pieces);
    rounds.push({ at: performance.now() - began, runs, tokens: pieces.length });
  }, options);
  return { rounds, took: performance.now() - began, tokens, drafted, text: written };
}

// Returns a run of each kind: the fastest of several where they are short, since other programs
// disturb those most.
async function runs(prompt, options) {
  const found = { plain: [], fast: [] };
  const measure = async (name, drafter, does) => {
    $("verdict").textContent = `decoding ${does} …`;
    found[name].push(await measured(prompt, drafter, options));
  };
  do {
    await measure("plain", "none", "plainly");
    await measure("fast", "", "with drafts");
  } while (found.plain.length < MOST_RUNS && found.plain[0].took < SHORT_MS);
  const best = (some) => some.sort((one, other) => one.took - other.took)[0];
  const [plain, fast] = [best(found.plain), best(found.fast)];
  return { plain, fast, count: found.plain.length, uneven: Object.values(found).some(isUneven) };
}

function isUneven([best, second]) {
  return second && second.took > Math.max(best.took * UNEVEN, best.took + UNEVEN_MS);
}

// At the pace it had, slowed down by a factor; 0 shows it at once.
function replay(run, lane, slower, signal) {
  const [place, pace] = [$(lane), $(`${lane}-pace`)];
  return new Promise((resolve, reject) => {
    const began = performance.now();
    let next = 0, count = 0;
    const step = () => {
      if (signal.aborted) return reject(new DOMException("stopped", "AbortError"));
      const now = slower ? (performance.now() - began) / slower : Infinity;
      while (next < run.rounds.length && run.rounds[next].at <= now) {
        appendRuns(place, run.rounds[next].runs);
        count += run.rounds[next++].tokens;
      }
      place.scrollTop = place.scrollHeight;
      const over = next === run.rounds.length;
      const drafted = over && run.drafted ? `, ${run.drafted} of them drafted` : "";
      pace.textContent = `${count} tokens, ${time(over ? run.took : now)}${drafted}`;
      if (over) resolve();
      else requestAnimationFrame(step);
    };
    step();
  });
}

function verdict({ plain, fast, uneven }) {
  const same = plain.text === fast.text ? "the same text" : "texts that differ, as they may at near-ties";
  const times = `Plain decoding took ${time(plain.took)}, with drafts ${time(fast.took)}`;
  if (Math.min(plain.tokens, fast.tokens) < ENOUGH) {
    return `${times}: too short to tell (below ${ENOUGH} tokens), ${same}`;
  }
  if (!fast.drafted) return `${times}: no draft became part of the text, so they tell nothing`;
  if (uneven) return `${times}: such runs differ too much to tell, is the machine busy?`;
  const ratio = (plain.took / plain.tokens) / (fast.took / fast.tokens);
  return `${times}: ${ratio.toFixed(2)} times the speed, ${same}`;
}

function how(slower, count) {
  const parts = count > 1 ? [`The fastest of ${count} runs each`] : [];
  if (slower > 1) parts.push(`${parts.length ? "shown" : "Shown"} ${slower} times slower than it was`);
  return parts.length ? `${parts.join(", ")}.` : "";
}

export async function race(prompt) {
  const signal = busy.begin();
  const options = { signal, session: newId() };
  for (const id of ["plain", "fast", "plain-pace", "fast-pace", "slow"]) $(id).replaceChildren();
  try {
    // The prompt is read once before, so that neither run has the other's advantage.
    $("verdict").textContent = "reading the prompt …";
    await decode(request(prompt, 1), () => {}, options);
    const found = await runs(prompt, options);
    const { plain, fast, count } = found;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const slower = still ? 0 : Math.max(1, Math.ceil(SHOWN_MS / Math.max(plain.took, fast.took)));
    $("verdict").textContent = "";
    $("slow").textContent = how(slower, count);
    await Promise.all([replay(plain, "plain", slower, signal), replay(fast, "fast", slower, signal)]);
    $("verdict").textContent = verdict(found);
  } catch (error) {
    $("verdict").textContent = error.name === "AbortError" ? "stopped" : inWords(error);
  } finally {
    busy.end();
  }
}
