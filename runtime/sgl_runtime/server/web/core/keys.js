// Keyboard shortcuts, and the sheet that lists them.

import { openDialog } from "./dialogs.js";
import { el } from "./dom.js";

const SHORTCUTS = [
  [["Ctrl", "Enter"], "send, or run the completion"],
  [["Esc"], "stop what is being generated; close a card"],
  [["Alt", "1"], "playground"],
  [["Alt", "2"], "live view"],
  [["Alt", "3"], "request inspector"],
  [["/"], "to the message field"],
  [["← →"], "between tokens, tabs and points of a chart"],
  [["Enter"], "on a token: what else could have come"],
  [["?"], "this list"],
];

/** Show the list. */
export function showShortcuts() {
  const entries = SHORTCUTS.flatMap(([keys, meaning]) => [
    el("dt", {}, ...keys.flatMap((key, place) => [place ? " + " : null, el("kbd", {}, key)])),
    el("dd", {}, meaning),
  ]);
  openDialog("Keyboard", el("dl", { class: "keys" }, ...entries));
}

/**
 * Listen for shortcuts of the whole page.
 * @param {{show: (view: string) => void, toMessage: () => void, stop: () => boolean}} actions
 */
export function startKeys({ show, toMessage, stop }) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.altKey && ["1", "2", "3"].includes(event.key)) {
      event.preventDefault();
      show(["playground", "live", "inspector"][Number(event.key) - 1]);
    } else if (event.key === "Escape" && stop()) {
      event.preventDefault();
    } else if (isPlain && event.key === "?" && !isWriting(event.target)) {
      event.preventDefault();
      showShortcuts();
    } else if (isPlain && event.key === "/" && !isWriting(event.target)) {
      event.preventDefault();
      toMessage();
    }
  });
}

function isWriting(target) {
  return target instanceof Element && target.closest("input, textarea, select") !== null;
}
