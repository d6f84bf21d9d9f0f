// Turns as the page shows them.

import { GrowingMarkdown } from "./markdown.js";
import { attributed } from "./api.js";
import { button, copyFrom, make } from "./dom.js";

function row(kind, name) {
  const text = make("div", { className: "text" });
  const element = make("div", { className: `turn ${kind}` }, make("b", {}, name), text);
  return { element, text };
}

// What the reader wrote; `onEdit` gets the new text.
export function userRow(turn, name, onEdit) {
  const { element, text } = row("user", name);
  text.textContent = turn.content;
  const edit = button("Edit", () => {
    const field = make("textarea", { value: turn.content, rows: 3, ariaLabel: "Edited message" });
    const close = () => {
      form.remove();
      text.hidden = actions.hidden = false;
      edit.focus();
    };
    const send = () => field.value.trim() && onEdit(field.value);
    const form = make("div", { className: "edit" }, field,
      make("div", { className: "row" }, button("Send", send), button("Cancel", close)));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    text.hidden = actions.hidden = true;
    element.append(form);
    field.focus();
  });
  const actions = make("div", { className: "actions" }, edit);
  element.append(actions);
  return element;
}

// Appends [text, source] each; those of one source after another share an element.
export function appendRuns(place, runs) {
  for (const [text, source] of runs) {
    const kind = source === "draft" ? "draft" : "target";
    const last = place.lastElementChild;
    if (last?.className === kind) last.firstChild.appendData(text);
    else if (text) place.append(make("span", { className: kind }, text));
  }
}

// An answer, which grows while it is decoded.
export class AnswerView {
  // `formatted`: as Markdown, otherwise as plain text with its drafts marked.
  constructor(turn, name, { formatted, onRegenerate, onGoOn, onRender }) {
    this.turn = turn;
    this.onRender = onRender;
    this.runs = [[turn.content, "target"]];
    this.unseen = { text: [], thinking: turn.thinking ?? "" };
    this.next = 0;
    const { element, text } = row("assistant", name);
    this.text = text;
    this.thinking = make("pre", {});
    this.folded = make("details", { className: "thinking" }, make("summary", {}, "Thinking"), this.thinking);
    this.note = make("p", { className: "note" });
    this.figures = make("p", { className: "note" });
    const copy = button("Copy", () => copyFrom(copy, this.turn.content));
    const again = button("Regenerate", onRegenerate, { className: "again" });
    this.more = button("Go on", onGoOn, { className: "more" });
    const actions = make("div", { className: "actions" }, copy, again, this.more);
    text.before(this.folded);
    element.append(this.note, this.figures, actions);
    this.element = element;
    this.show(formatted);
    this.finish();
  }

  // Shows the text anew, formatted or plain.
  show(formatted) {
    this.text.replaceChildren();
    this.text.classList.toggle("formatted", formatted);
    this.markdown = formatted ? new GrowingMarkdown(this.text) : null;
    this.unseen.text = this.runs.slice();
    this.render();
  }

  push({ text, thinking, pieces }) {
    this.turn.content += text;
    if (thinking) this.turn.thinking = (this.turn.thinking ?? "") + thinking;
    const runs = attributed(text, pieces);
    this.runs.push(...runs);
    this.unseen.text.push(...runs);
    this.unseen.thinking += thinking;
    if (!this.waiting) this.waiting = requestAnimationFrame(this.tick);
  }

  // At most a fifth of the time goes into showing what has come.
  tick = (now) => {
    this.waiting = requestAnimationFrame(this.tick);
    if (now < this.next) return;
    const began = performance.now();
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    this.render();
    this.next = began + 5 * (performance.now() - began);
  };

  render() {
    const { text, thinking } = this.unseen;
    this.unseen = { text: [], thinking: "" };
    if (thinking) this.thinking.append(thinking);
    this.folded.hidden = !this.turn.thinking;
    if (this.markdown) {
      this.markdown.push(text.map(([one]) => one).join(""));
      this.markdown.render();
    } else {
      appendRuns(this.text, text);
    }
    this.onRender();
  }

  // Shows all that has come, and what is said about it.
  finish() {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    this.note.textContent = this.turn.note ?? "";
    this.figures.textContent = this.turn.figures ?? "";
    this.render();
    this.markdown?.finish();
  }
}
