// The list of conversations that this browser keeps.

import * as chat from "./chat.js";
import { $, announce, button, make } from "./dom.js";
import * as settings from "./settings.js";
import * as store from "./store.js";

const WIDE = matchMedia("(min-width: 60rem)");

function entry(talk) {
  const title = talk.title || "Untitled";
  const here = talk.id === chat.current()?.id;
  const opens = button(title, () => {
    chat.open(talk.id);
    fold(true);
    $("prompt").focus();
  }, { className: "title", title });
  if (here) opens.setAttribute("aria-current", "true");
  const removes = button("Delete", () => {
    store.remove(talk.id);
    if (here) chat.fresh();
    else show();
    announce(`Deleted: ${title}`);
    $("new").focus();
  }, { ariaLabel: `Delete: ${title}`, textContent: "×", className: "quiet" });
  return make("li", {}, opens, removes);
}

export function show() {
  const found = store.list();
  $("list").replaceChildren(...found.map(entry));
  $("delete-all").hidden = found.length === 0;
  $("kept").textContent = found.length
    ? `Kept in this browser alone, the newest ${store.LIMITS.talks}.`
    : "Conversations are kept in this browser alone.";
}

// On a narrow screen the list is open only while one is chosen.
function fold(folded) {
  $("talks").classList.toggle("folded", folded);
  $("talks-toggle").setAttribute("aria-expanded", String(!folded));
}

export function start() {
  fold(true);
  WIDE.addEventListener("change", () => fold(true));
  $("talks-toggle").addEventListener("click", () => {
    fold(!$("talks").classList.contains("folded"));
  });
  $("new").addEventListener("click", () => {
    chat.fresh();
    fold(true);
    $("prompt").focus();
  });
  $("delete-all").addEventListener("click", () => {
    $("how-many").textContent = String(store.list().length);
    $("sure").showModal();
  });
  $("sure-no").addEventListener("click", () => $("sure").close());
  $("sure-yes").addEventListener("click", () => {
    $("sure").close();
    store.removeAll();
    settings.forgetInstructions();
    chat.fresh();
    announce("All conversations are deleted");
    $("prompt").focus();
  });
  // Another tab has kept or deleted one.
  addEventListener("storage", show);
  show();
}
