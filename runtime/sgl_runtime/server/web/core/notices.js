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
  try {
    await navigator.clipboard.writeText(text);
    notice(`${what} copied.`);
  } catch {
    notice("The browser does not let this page copy. Select the text instead.");
  }
}
