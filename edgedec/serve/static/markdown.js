// Markdown as elements. The parser's tokens become elements of the kinds below and text nodes;
// HTML in a text stays text, images are links, and links lead to the web or to mail only.

import { make } from "./dom.js";
import MarkdownIt from "./vendor/markdown-it.esm.min.mjs";

const DEEPEST = 60;
const PLAIN = new Set([
  "p", "blockquote", "ul", "li", "em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td",
]);
const parser = new MarkdownIt({ html: false, linkify: true });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
// Addresses are checked below; what is refused is shown as its text alone.
parser.validateLink = () => true;

function address(given) {
  try {
    const found = new URL(given);
    return ["http:", "https:", "mailto:"].includes(found.protocol) ? found.href : null;
  } catch {
    return null;
  }
}

function link(given, ...children) {
  const href = address(given);
  if (!href) return make("span", {}, ...children);
  const where = { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" };
  return make("a", where, ...children);
}

function code(token) {
  const language = token.info.trim().split(/\s+/)[0];
  const copy = make("button", { type: "button", className: "copy", textContent: "Copy" });
  const head = make("div", { className: "code-head" }, make("span", {}, language || "text"), copy);
  const text = make("pre", { tabIndex: 0 }, make("code", {}, token.content));
  return make("div", { className: "code" }, head, text);
}

function opened(token) {
  if (token.type === "link_open") return link(token.attrGet("href"));
  if (token.type === "heading_open") return make(`h${Math.min(6, Number(token.tag[1]) + 2)}`);
  if (token.type === "ordered_list_open") {
    return make("ol", { start: Number(token.attrGet("start") ?? 1) });
  }
  const side = /right|center/.exec(token.attrGet("style") ?? "");
  return make(PLAIN.has(token.tag) ? token.tag : "span", side ? { className: side[0] } : {});
}

function leaf(token) {
  switch (token.type) {
    case "fence":
    case "code_block": return code(token);
    case "code_inline": return make("code", {}, token.content);
    case "softbreak": return "\n";
    case "hardbreak": return make("br");
    case "hr": return make("hr");
    case "image": return link(token.attrGet("src"), `[image: ${token.content}]`);
    default: return token.content;
  }
}

// A wide table scrolls by itself, with the arrow keys too.
function framed(element) {
  return element.tagName === "TABLE" ? make("div", { className: "wide", tabIndex: 0 }, element) : element;
}

function fill(root, tokens) {
  const open = [root];
  for (const token of tokens) {
    const here = open.at(-1);
    if (token.hidden) continue; // the paragraphs of a tight list
    if (token.type === "inline") {
      fill(here, token.children);
    } else if (token.nesting === 0) {
      here.append(leaf(token));
    } else if (token.nesting < 0) {
      open.pop();
    } else if (open.length > DEEPEST) {
      open.push(here); // layout recurses: what is nested deeper stays at this depth
    } else {
      const element = opened(token);
      here.append(framed(element));
      open.push(element);
    }
  }
}

// Returns the blocks of a text: { line, element } each.
function blocks(text) {
  const found = [];
  let first = 0;
  const tokens = parser.parse(text, {});
  for (const [place, token] of tokens.entries()) {
    if (token.level !== 0 || token.nesting > 0) continue;
    const holder = document.createDocumentFragment();
    fill(holder, tokens.slice(first, place + 1));
    found.push({ line: tokens[first].map[0], element: holder.firstChild });
    first = place + 1;
  }
  return found;
}

// Makes a node like another one, and leaves alone what is the same: selections and the focus stay.
function patch(node, fresh) {
  if (node.nodeName !== fresh.nodeName) {
    node.replaceWith(fresh);
  } else if (node.nodeType === Node.TEXT_NODE) {
    if (fresh.data.startsWith(node.data)) node.appendData(fresh.data.slice(node.data.length));
    else node.data = fresh.data;
  } else {
    for (const { name } of [...node.attributes]) {
      if (!fresh.hasAttribute(name)) node.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    }
    patchAll(node, [...node.childNodes], [...fresh.childNodes]);
  }
}

function patchAll(parent, nodes, fresh) {
  for (const [place, one] of fresh.entries()) {
    if (place < nodes.length) patch(nodes[place], one);
    else parent.append(one);
  }
  for (const node of nodes.slice(fresh.length)) node.remove();
}

function lineStart(text, line) {
  const ends = /\r\n?|\n/g;
  for (let passed = 0; passed < line; passed++) ends.exec(text);
  return ends.lastIndex;
}

// A text that grows, in an element. Blocks before the last one are final and not parsed again, so
// the cost of a long text is linear in its blocks.
export class GrowingMarkdown {
  constructor(place) {
    this.place = place;
    this.text = "";
    this.parsedChars = 0; // of all passes
    this.restart();
  }

  restart() {
    this.finalChars = 0;
    this.finalBlocks = 0;
  }

  push(text) {
    this.text += text;
  }

  render() {
    const tail = this.text.slice(this.finalChars);
    this.parsedChars += tail.length;
    const found = blocks(tail);
    const nodes = [...this.place.childNodes].slice(this.finalBlocks);
    patchAll(this.place, nodes, found.map((one) => one.element));
    const begin = found.length > 1 ? lineStart(tail, found.at(-1).line) : 0;
    // An unfinished first line may yet turn out to belong to the block before it.
    if (begin && /[\r\n]/.test(tail.slice(begin))) {
      this.finalChars += begin;
      this.finalBlocks += found.length - 1;
    }
  }

  // Definitions of links may follow their use: the whole text is read once more.
  finish() {
    this.restart();
    this.render();
  }
}
