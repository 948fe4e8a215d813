// One request: what the model saw and wrote, token by token, when, and under which constraint.

import { post } from "../core/api.js";
import { el, replace } from "../core/dom.js";
import { clock, count, duration, percent, plural } from "../core/format.js";
import { copyText } from "../core/notices.js";
import { problemCard } from "../core/problem.js";
import { stateChip } from "./states.js";
import { timeline } from "./timeline.js";
import { TokenStrip } from "./token_strip.js";

/** Shows a request. */
export class Detail {
  /** @param {{back: () => void}} actions */
  constructor({ back }) {
    this.element = el("div", { class: "detail" });
    this._back = el("button", { type: "button", class: "button small back", onclick: back }, "‹ All requests");
    this._wanted = null;
  }

  /** Show the request that `{rid}` or `{key}` names. */
  async show(which) {
    this._wanted = which;
    try {
      const request = await post("inspect_request", which);
      if (this._wanted === which) this._render(request, which);
    } catch (error) {
      if (this._wanted === which) replace(this.element, this._back, problemCard(error));
    }
  }

  clear() {
    this._wanted = null;
    replace(this.element, el("div", { class: "empty" }, el("p", {}, "Choose a request to see what the model saw.")));
  }

  _render(request, which) {
    const { prompt, output } = request;
    const forced = new Set(output.forced);
    const again = el("button", { type: "button", class: "quiet", onclick: () => this.show(which) }, "Look again");
    const copy = el("button", { type: "button", class: "quiet", onclick: () => copyText(request.rid, "Request id") }, "Copy id");
    replace(
      this.element,
      this._back,
      el(
        "header",
        { class: "detail-head" },
        el("h2", {}, request.path ?? "in-process call"),
        stateChip(request.state),
        el("span", { class: "hint" }, clock(request.time)),
        copy,
        request.state === "running" ? again : null,
        el("code", { class: "rid" }, request.rid),
      ),
      request.error ? problemCard({ title: "It failed", message: request.error, status: 0 }) : null,
      el("section", { class: "card part" }, el("h3", {}, "Time"), timeline(request), facts(request)),
      part(
        "What the model saw",
        promptLegend(request),
        prompt.total
          ? new TokenStrip("Prompt, token by token", prompt, {
              classOf: (place) => (place < request.cached_tokens ? "cached" : ""),
              wordsOf: (place) => (place < request.cached_tokens ? "from the prefix cache" : ""),
              more: async (begin) => (await post("inspect_request", { ...which, prompt_begin: begin })).prompt,
            }).element
          : el("p", { class: "hint" }, `${plural(request.prompt_tokens, "position")}, given as embeddings.`),
      ),
      part(
        "What it wrote",
        outputLegend(request),
        output.total
          ? new TokenStrip("Output, token by token", output, {
              classOf: (place) => (forced.has(place) ? "forced" : ""),
              wordsOf: (place) => (forced.has(place) ? "forced by the grammar" : ""),
              more: async (begin) => {
                const { output: next } = await post("inspect_request", { ...which, output_begin: begin });
                for (const place of next.forced) forced.add(place);
                return next;
              },
            }).element
          : el("p", { class: "hint" }, "Nothing."),
      ),
      constraintPart(request.grammar),
      settingsPart(request.sampling),
    );
  }
}

function part(title, legend, ...children) {
  return el("section", { class: "card part" }, el("div", { class: "row" }, el("h3", {}, title), legend), ...children);
}

function facts(request) {
  const { finish } = request;
  const end = finish?.matched !== null && finish?.matched !== undefined ? `${finish.type}, at ${JSON.stringify(finish.matched)}` : finish?.type;
  const rows = [
    ["Finish", end ?? request.state],
    ["Prompt", `${plural(request.prompt_tokens, "token")}, ${count(request.cached_tokens)} of them cached`],
    ["Output", `${plural(request.completion_tokens, "token")}${request.forced_tokens ? `, ${count(request.forced_tokens)} of them without a pass` : ""}`],
    ["HTTP request", request.request_id],
  ].filter(([, value]) => value);
  return el("dl", { class: "fact-list" }, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function promptLegend(request) {
  if (!request.cached_tokens) return null;
  const share = percent(request.cached_tokens / request.prompt_tokens);
  return el("span", { class: "hint" }, el("i", { class: "swatch cached", "aria-hidden": "true" }), `from the prefix cache: ${share}`);
}

function outputLegend(request) {
  if (!request.output.forced.length) return null;
  const text = `forced by the grammar: ${percent(request.output.forced.length / request.output.ids.length)}`;
  return el("span", { class: "hint" }, el("i", { class: "swatch forced", "aria-hidden": "true" }), text);
}

function constraintPart(grammar) {
  if (!grammar) return null;
  const told = grammar.backend
    ? `${grammar.kind}, enforced by ${grammar.backend}, ${grammar.compile_seconds ? `compiled in ${duration(grammar.compile_seconds)}` : "found in the cache"}`
    : grammar.kind;
  const left = grammar.relaxed.map(({ path, reason }) => el("p", { class: "warning" }, `Left out: ${path} ${reason}`));
  const text = typeof grammar.constraint === "string" ? pretty(grammar.constraint) : grammar.constraint.join("\n");
  return part("Constraint", el("span", { class: "hint" }, told), el("pre", { class: "constraint-text", tabindex: "0" }, text), ...left);
}

function settingsPart(sampling) {
  const rows = Object.entries(sampling).map(([name, value]) =>
    el("tr", {}, el("th", { scope: "row", class: "mono" }, name), el("td", { class: "mono" }, JSON.stringify(value))),
  );
  if (!rows.length) return null;
  return part("Settings that differ from the defaults", null, el("table", {}, el("tbody", {}, ...rows)));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
