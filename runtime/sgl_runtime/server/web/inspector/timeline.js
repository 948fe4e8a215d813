// Where the time of a request went: queue, prompt, output.

import { el } from "../core/dom.js";
import { decimal, duration } from "../core/format.js";

/** @param {object} request The reply of `/inspect_request`. */
export function timeline(request) {
  const { queue, first_token: first, total } = request.timing;
  const compile = Math.min(request.grammar?.compile_seconds ?? 0, queue);
  const parts = [
    ["compile", "constraint compiled", compile],
    ["queue", "queue", Math.max(0, queue - compile)],
    ["prefill", "prompt, to the first token", first === null ? Math.max(0, total - queue) : Math.max(0, first - queue)],
    ["decode", "output", first === null ? 0 : Math.max(0, total - first)],
  ].filter(([, , seconds]) => seconds > 0);
  const bar = el("div", { class: "time-bar", role: "img", "aria-label": parts.map(([, name, s]) => `${name} ${duration(s)}`).join(", ") });
  for (const [kind, , seconds] of parts) {
    const piece = el("span", { class: `time-${kind}` });
    piece.style.flexGrow = String(Math.max(seconds / total, 0.004));
    bar.append(piece);
  }
  const legend = parts.map(([kind, name, seconds]) =>
    el("li", {}, el("i", { class: `time-${kind}`, "aria-hidden": "true" }), `${name} `, el("strong", {}, duration(seconds))),
  );
  const perSecond = request.completion_tokens > 1 && first !== null && total > first;
  const speed = perSecond ? `${decimal((request.completion_tokens - 1) / (total - first))} tokens/s` : null;
  return el(
    "div",
    { class: "timeline" },
    bar,
    el("ul", { class: "time-legend" }, ...legend, el("li", {}, "in all ", el("strong", {}, duration(total))), speed ? el("li", {}, speed) : null),
  );
}
