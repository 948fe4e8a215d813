// An error of the server as a card: what happened, in its own words, and what can be done.

import { el } from "./dom.js";

/**
 * @param {Error | {message: string, status: number, code?: string, param?: string | null, requestId?: string | null,
 *   title?: string}} error An ApiError, or what was kept of one.
 * @param {...Node} actions
 */
export function problemCard(error, ...actions) {
  const facts = [
    error.status ? `status ${error.status}` : null,
    error.code || null,
    error.param ? `field ${error.param}` : null,
    error.requestId ? `request ${error.requestId}` : null,
  ].filter(Boolean);
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("strong", {}, error.title ?? "This did not work"),
    el("p", {}, error.message),
    facts.length ? el("p", { class: "small mono" }, facts.join(" · ")) : null,
    actions.length ? el("div", {}, ...actions) : null,
  );
}
