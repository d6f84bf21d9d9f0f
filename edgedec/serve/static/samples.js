// Something to begin with, for each kind of model.

import { $, button } from "./dom.js";
import { continuesCode, isChat } from "./settings.js";

const CHAT = [
  "Explain how a hash table works, with a short example in Python.",
  "Make a table of the planets: name, diameter, number of moons.",
  "Rewrite this politely: Send me the report today, you are late again.",
  "Plan a week of simple dinners for two, with a shopping list.",
];
const TEXT = [
  "Once upon a time, in a village at the foot of a mountain,",
  "The three most important rules for a safe password are:\n1.",
];
// Without a line end: after one, a small model begins something else.
const CODE = [
  'class Stack:\n    """A stack of items."""\n\n    def __init__(self):',
  "class Account:\n    def __init__(self, owner):",
  "class Version:\n    def __lt__(self, other):",
];
const RACE = "Write a Python class for a bank account: deposit, withdraw, and a list of movements, with docstrings.";

function samples() {
  if (isChat()) return CHAT;
  return continuesCode() ? CODE : [...TEXT, ...CODE.slice(0, 1)];
}

export function raceExample() {
  return isChat() ? RACE : CODE[0];
}

// Fills the empty page; `use` gets the chosen text.
export function show(use) {
  const code = continuesCode() && !isChat();
  $("chat").parentElement.classList.toggle("of-code", code);
  $("hint").textContent = code
    ? "This small pair continues Python code. Choose a beginning, or write one."
    : "Choose one of these, or write your own.";
  $("samples").replaceChildren(...samples().map((text) => button(text.trim(), () => use(text))));
}
