// What is said in passing: to the eye in a corner, to the ear through a polite live region.

import { el } from "./dom.js";

const SHOWN_MS = 5000;

/** Say something for a moment. */
export function notice(text) {
  const node = el("div", { class: "notice", role: "status" }, text);
  document.getElementById("notices").append(node);
  setTimeout(() => node.remove(), SHOWN_MS);
}

/** Say something to a screen reader alone. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Put a text on the clipboard; where the browser does not let us, say so. */
export async function copyText(text, what) {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (isCopied || copyBySelection(text)) notice(`${what} copied.`);
  else notice("The browser does not let this page copy. Select the text instead.");
}

/** The way that is left without TLS, where there is no clipboard for pages. */
function copyBySelection(text) {
  const focused = document.activeElement;
  const field = el("textarea", { class: "only-heard", "aria-hidden": "true", value: text });
  // Inside an open dialog nothing else can be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return isCopied;
}
