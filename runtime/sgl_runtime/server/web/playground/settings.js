// The settings of a request: sampling, probabilities; each field shows what the server says of it.

import { el, freshId } from "../core/dom.js";

const FIELDS = [
  ["temperature", "Temperature", "0 takes the likeliest token", { step: "0.1", min: "0" }],
  ["max_tokens", "Max tokens", "of the answer", { step: "1", min: "1" }],
  ["top_p", "Top p", "likeliest tokens up to this share", { step: "0.05", min: "0", max: "1" }],
  ["top_k", "Top k", "so many of the likeliest", { step: "1" }],
  ["min_p", "Min p", "share of the likeliest one's probability", { step: "0.01", min: "0", max: "1" }],
  ["seed", "Seed", "the same one repeats the answer", { step: "1", min: "0" }],
  ["frequency_penalty", "Frequency penalty", "for each time it came", { step: "0.1", min: "-2", max: "2" }],
  ["presence_penalty", "Presence penalty", "once it has come", { step: "0.1", min: "-2", max: "2" }],
  ["repetition_penalty", "Repetition penalty", "divides; 1 for none", { step: "0.05", min: "0" }],
  ["n", "Choices", "side by side", { step: "1", min: "1", max: "16" }],
];

/** The fields of sampling. */
export class SamplingForm {
  /** @param {import("./state.js").Store} store */
  constructor(store) {
    this._store = store;
    this._inputs = new Map();
    this._wrong = new Map();
    const fields = FIELDS.map(([name, label, hint, limits]) => this._number(name, label, hint, limits));
    this.element = el(
      "fieldset",
      { class: "plain" },
      el("legend", { class: "only-heard" }, "Sampling"),
      el("div", { class: "setting-grid" }, ...fields),
      this._stops(),
    );
  }

  /** Show the state as it is now. */
  render() {
    for (const [name, input] of this._inputs) input.value = this._store.state.sampling[name];
    this.clearErrors();
  }

  /**
   * Show what is wrong with a field.
   * @returns {boolean} Whether there is such a field here.
   */
  showError(name, message) {
    const input = this._inputs.get(name);
    if (!input) return false;
    input.setAttribute("aria-invalid", "true");
    this._wrong.get(name).textContent = message;
    return true;
  }

  clearErrors() {
    for (const name of this._inputs.keys()) this._clear(name);
  }

  _clear(name) {
    this._inputs.get(name).removeAttribute("aria-invalid");
    this._wrong.get(name).textContent = "";
  }

  _number(name, label, hint, limits) {
    const input = el("input", { type: "number", inputmode: "decimal", placeholder: "default", title: hint, ...limits });
    return this._field(name, label, input, null);
  }

  _stops() {
    const input = el("textarea", { rows: "2", class: "mono", spellcheck: "false", placeholder: "one a line; \\n for a line break" });
    return this._field("stop", "Stop texts", input, null);
  }

  _field(name, label, input, hint) {
    const id = freshId(name);
    const wrong = el("p", { class: "wrong", id: `${id}-wrong` });
    input.id = id;
    input.setAttribute("aria-describedby", wrong.id);
    input.value = this._store.state.sampling[name];
    input.addEventListener("input", () => {
      this._store.state.sampling[name] = input.value;
      this._store.changed();
      this._clear(name);
    });
    this._inputs.set(name, input);
    this._wrong.set(name, wrong);
    return el("div", { class: "field" }, el("label", { for: id }, label), input, wrong, hint);
  }
}

/** Whether probabilities of tokens are wanted, and how many others at each place. */
export class ProbabilityForm {
  /** @param {import("./state.js").Store} store */
  constructor(store) {
    this._store = store;
    this._on = el("input", { type: "checkbox" });
    this._top = el("input", { type: "number", min: "0", max: "20", step: "1", id: freshId("top"), class: "narrow" });
    for (const input of [this._on, this._top]) input.addEventListener("change", () => this._take());
    const legend = [..."012345"].map((shade) => el("span", { class: `token shade-${shade}` }, ["≥ 90", "≥ 70", "≥ 50", "≥ 30", "≥ 10", "< 10"][shade]));
    this.element = el(
      "div",
      { class: "stack" },
      el("label", { class: "check" }, this._on, el("span", {}, "Ask for them, and shade tokens by theirs")),
      el("div", { class: "row" }, el("label", { class: "label", for: this._top.id }, "Others at each place"), this._top),
      el("p", { class: "shade-legend", "aria-label": "Shades, in per cent" }, ...legend, el("span", { class: "hint" }, " %")),
      el("p", { class: "hint" }, "With a constraint they cost a pass for each token that it forces."),
    );
    this.render();
  }

  /** Show the state as it is now. */
  render() {
    const { on, top } = this._store.state.probabilities;
    this._on.checked = on;
    this._top.value = top;
    this._top.disabled = !on;
  }

  _take() {
    const top = Math.round(Number(this._top.value));
    this._store.state.probabilities = { on: this._on.checked, top: Math.max(0, Math.min(20, Number.isFinite(top) ? top : 5)) };
    this._store.changed();
    this.render();
  }
}
