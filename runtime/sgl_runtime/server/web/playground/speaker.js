// Reads an answer to a screen reader while it is written: whole sentences, and not too often.

import { announce } from "../core/notices.js";

const PAUSE_MS = 2500;

/** Follows the first answer of a run. */
export class Speaker {
  constructor() {
    this._said = 0;
    this._last = 0;
  }

  /** @param {import("./state.js").Answer} answer */
  follow(answer) {
    if (answer.index) return;
    if (answer.error) {
      announce(answer.error.message);
      return;
    }
    const now = performance.now();
    const isOver = Boolean(answer.finish);
    if (!isOver && now - this._last < PAUSE_MS) return;
    const rest = answer.text.slice(this._said);
    const end = isOver ? rest.length : lastSentenceEnd(rest);
    if (!end) return;
    this._last = now;
    this._said += end;
    announce(rest.slice(0, end));
  }
}

function lastSentenceEnd(text) {
  const found = [...text.matchAll(/[.!?:;\n](?=\s|$)/g)].pop();
  return found ? found.index + 1 : 0;
}
