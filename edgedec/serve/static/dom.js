// Small helpers for the document. Text only ever becomes text nodes.

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function button(name, action, properties = {}) {
  const one = make("button", { type: "button", textContent: name, ...properties });
  one.addEventListener("click", action);
  return one;
}

// A screen reader reads this out; nothing of it is seen.
export function announce(text) {
  $("announce").textContent = text;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS, only addresses of this machine have a clipboard.
    const field = make("textarea", { value: text, className: "unseen" });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  announce("Copied");
}

// Copies, and says so on the button for a moment.
export async function copyFrom(one, text) {
  const focused = document.activeElement;
  await copy(text);
  focused?.focus();
  one.textContent = "Copied";
  setTimeout(() => { one.textContent = "Copy"; }, 1500);
}

export function time(milliseconds) {
  if (milliseconds < 9999.5) return `${Math.round(milliseconds)} ms`;
  return `${(milliseconds / 1000).toFixed(1)} s`;
}

export function megabytes(bytes) {
  return `${Math.round(bytes / 1e6)} MB`;
}
