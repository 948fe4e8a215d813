// The live view: figures of the moment, charts of the last minutes, facts.

import { get } from "../core/api.js";
import { el, replace } from "../core/dom.js";
import { compact, count, decimal, duration, percent } from "../core/format.js";
import { problemCard } from "../core/problem.js";
import { Chart } from "./chart.js";
import { ConfigTable, modelCard } from "./facts.js";
import { cachedShare, counter, hitRate, percentile, rate, Series } from "./series.js";

const TILES = [
  ["Running", counter("num_running"), count],
  ["Queued", counter("num_waiting"), count],
  ["Tokens/s", rate("generation_tokens"), compact],
  ["Slots in use", counter("token_usage"), percent],
  ["Cache hits", hitRate, percent],
  ["First token p50", percentile("ttft", 0.5), duration],
  ["Sessions", counter("num_sessions"), count],
  ["Up for", counter("uptime_seconds"), duration],
];

/** Builds the view; `update` is called with each answer of `/live_stats`. */
export class LiveView {
  /**
   * @param {HTMLElement} root
   * @param {object} model The reply of `/get_model_info`.
   */
  constructor(root, model) {
    this._root = root;
    this._model = model;
    this._series = new Series();
    this._hasFacts = false;
    this._state = el("div", { class: "server-state", role: "status" });
    this._tiles = TILES.map(([name, figure, format]) => ({ figure, format, value: el("dd", {}, "–"), name }));
    this._charts = charts();
    this._config = new ConfigTable();
    this._facts = el("div");
    replace(
      root,
      el(
        "div",
        { class: "live" },
        this._state,
        el("dl", { class: "tiles" }, ...this._tiles.map(({ name, value }) => el("div", { class: "tile card" }, el("dt", {}, name), value))),
        el("div", { class: "charts" }, ...this._charts.map((chart) => chart.element)),
        el("div", { class: "fact-columns" }, this._facts, this._config.element),
      ),
    );
  }

  /** The view has come into sight. */
  show() {
    this._draw();
    if (!this._hasFacts) this._loadFacts();
  }

  /** @param {object} stats The reply of `/live_stats`. */
  update(stats) {
    this._series.add(stats);
    replace(this._state, stateCard(stats));
    if (!this._root.hidden) this._draw();
  }

  /** The server did not answer. */
  fail(error) {
    replace(this._state, problemCard(error));
  }

  _draw() {
    const { latest } = this._series;
    if (!latest) return;
    const place = this._series.samples.length - 1;
    for (const { figure, format, value } of this._tiles) {
      const number = figure(latest.stats, this._series, place);
      value.textContent = number === null ? "–" : format(number);
    }
    for (const chart of this._charts) chart.update(this._series);
  }

  async _loadFacts() {
    try {
      const info = await get("get_server_info");
      this._hasFacts = true;
      replace(this._facts, modelCard(this._model, info));
      this._config.show(info);
    } catch (error) {
      replace(this._facts, problemCard(error));
    }
  }
}

/** What is to be said of the server's state; null where all is as it should be. */
function stateCard({ scheduler }) {
  if (scheduler === null) {
    return el("p", { class: "warning" }, "The scheduler did not answer within half a second: it is in the middle of a long pass, or stuck.");
  }
  if (scheduler.is_paused) {
    return el("p", { class: "warning" }, "Generation is paused: no pass runs until /continue_generation is called.");
  }
  if (scheduler.failed_idle_checks_total) {
    return el("p", { class: "warning" }, `${count(scheduler.failed_idle_checks_total)} idle checks found slots missing; the server's log has the cause.`);
  }
  return null;
}

function charts() {
  return [
    new Chart("Requests", [{ name: "running", figure: counter("num_running") }, { name: "queued", figure: counter("num_waiting") }], { format: decimal, least: 4 }),
    new Chart("Throughput", [{ name: "generated", figure: rate("generation_tokens") }, { name: "prompt", figure: rate("prompt_tokens") }], {
      format: compact,
      least: 10,
      hint: "Tokens a second over the last 5 seconds",
    }),
    new Chart("Slots", [{ name: "in use", figure: counter("token_usage") }, { name: "cached", figure: cachedShare }], {
      format: percent,
      least: 0.1,
      hint: "Share of the token slots that requests hold, and that the prefix cache holds",
    }),
    new Chart("Cache hit rate", [{ name: "of prompt tokens", figure: hitRate }], { format: percent, least: 1, hint: "Over the last 30 seconds" }),
    new Chart("Time to first token", [{ name: "p50", figure: percentile("ttft", 0.5) }, { name: "p95", figure: percentile("ttft", 0.95) }], {
      format: duration,
      least: 0.05,
      hint: "Over the last 30 seconds, estimated from the server's histogram",
    }),
    new Chart("Between tokens", [{ name: "p50", figure: percentile("itl", 0.5) }, { name: "p95", figure: percentile("itl", 0.95) }], {
      format: duration,
      least: 0.02,
      hint: "Over the last 30 seconds, estimated from the server's histogram",
    }),
  ];
}
