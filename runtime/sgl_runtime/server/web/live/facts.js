// What is served, and the effective configuration, which can be searched.

import { el, freshId, replace } from "../core/dom.js";
import { bytes, count } from "../core/format.js";

/** The card about the model. */
export function modelCard(model, info) {
  const facts = [
    ["Model", model.served_model_name],
    ["Path", model.model_path],
    ["Kind", model.is_generation ? "generates text" : "makes vectors of texts"],
    ["Context", `${count(model.context_length)} tokens`],
    ["Vocabulary", `${count(model.vocab_size)} tokens`],
    ["Hidden size", count(model.hidden_size)],
    ["Weights", model.weight_dtype],
    ["Chat template", model.has_chat_template ? "yes" : "none"],
    ["Thinking", model.reasoning_parser?.name],
    ["Tool calls", model.tool_call_parser],
    ["Keys and values", info?.kv_cache_bytes ? bytes(info.kv_cache_bytes) : null],
    ["Device", info?.device],
    ["Version", info?.version],
  ].filter(([, value]) => value !== null && value !== undefined);
  return el(
    "section",
    { class: "card facts" },
    el("h3", {}, "Model"),
    el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
  );
}

/** The table of the configuration. */
export class ConfigTable {
  constructor() {
    const id = freshId("config-search");
    this._search = el("input", { type: "search", id, placeholder: "Search names and values", oninput: () => this._filter() });
    this._rows = el("tbody");
    this._found = el("span", { class: "hint", role: "status" });
    this.element = el(
      "section",
      { class: "card facts config" },
      el("div", { class: "row" }, el("h3", {}, "Effective configuration"), this._found),
      el("label", { class: "only-heard", for: id }, "Search the configuration"),
      this._search,
      el(
        "div",
        { class: "table-scroller", tabindex: "0", role: "region", "aria-label": "Configuration" },
        el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Name"), el("th", { scope: "col" }, "Value"))), this._rows),
      ),
    );
  }

  /** @param {object} info The reply of `/get_server_info`. */
  show(info) {
    const entries = Object.entries(info).filter(([name]) => name !== "internal_states");
    const rows = entries.sort(([one], [other]) => one.localeCompare(other)).map(([name, value]) =>
      el("tr", {}, el("th", { scope: "row", class: "mono" }, name), el("td", { class: "mono" }, shown(value))),
    );
    replace(this._rows, ...rows);
    this._filter();
  }

  _filter() {
    const words = this._search.value.toLowerCase().replaceAll("-", "_").split(/\s+/).filter(Boolean);
    let numShown = 0;
    for (const row of this._rows.children) {
      const text = row.textContent.toLowerCase().replaceAll("-", "_");
      row.hidden = !words.every((word) => text.includes(word));
      numShown += row.hidden ? 0 : 1;
    }
    this._found.textContent = words.length ? `${numShown} of ${this._rows.childElementCount}` : "";
  }
}

function shown(value) {
  if (value === null) return "–";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}
