// The state of a request as a word with a colour.

import { el } from "../core/dom.js";

const KINDS = { running: "busy", stop: "good", length: "", abort: "", left: "" };
const WORDS = { running: "running", stop: "done", length: "token limit", abort: "aborted", left: "client left" };

/** @param {string} state As in `/request_history`. */
export function stateChip(state) {
  return el("span", { class: `chip ${KINDS[state] ?? "bad"}` }, WORDS[state] ?? state);
}
