// In place of the playground for models that make vectors: how near texts are to a question.

import { post } from "../core/api.js";
import { el, replace } from "../core/dom.js";
import { decimal, percent } from "../core/format.js";
import { problemCard } from "../core/problem.js";

const EXAMPLE = ["A cat sleeps on the sofa.", "Interest rates were raised again.", "My dog is resting in the sun."];

/** Builds the form. */
export class Vectors {
  /**
   * @param {HTMLElement} root
   * @param {{model: object}} options
   */
  constructor(root, { model }) {
    this._model = model;
    this._labels = model.pooling?.labels?.length > 1;
    this._query = el("input", { type: "text", id: "query", value: "a pet that takes a nap" });
    this._texts = el("textarea", { rows: "8", id: "texts", value: EXAMPLE.join("\n") });
    this._result = el("div", { "aria-live": "polite" });
    const form = el(
      "form",
      { class: "vectors card" },
      el("h2", {}, this._labels ? "Classify texts" : "Rank texts"),
      el("p", { class: "hint" }, "This model makes vectors of texts and generates nothing, so there is no chat."),
      this._labels ? null : el("div", { class: "field" }, el("label", { for: "query" }, "Question"), this._query),
      el("div", { class: "field" }, el("label", { for: "texts" }, "Texts, one a line"), this._texts),
      el("button", { type: "submit", class: "button main" }, this._labels ? "Classify" : "Rank"),
      this._result,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._run();
    });
    replace(root, el("div", { class: "vectors-page" }, form));
  }

  stop() {
    return false;
  }

  focusMessage() {
    (this._labels ? this._texts : this._query).focus();
  }

  async _run() {
    const texts = this._texts.value.split("\n").filter((line) => line.trim());
    try {
      if (this._labels) this._showLabels(texts, await post("v1/classify", { input: texts }));
      else this._showRanks(texts, await post("v1/rerank", { query: this._query.value, documents: texts }));
    } catch (error) {
      replace(this._result, problemCard(error));
    }
  }

  _showRanks(texts, { results }) {
    const rows = results.map(({ index, relevance_score: score }) => {
      const bar = el("span", { class: "bar" });
      bar.style.width = `${Math.max(0, Math.min(1, score)) * 100}%`;
      return el("tr", {}, el("td", {}, texts[index]), el("td", { class: "bar-cell" }, el("span", { class: "track" }, bar)), el("td", { class: "number" }, decimal(score)));
    });
    replace(this._result, el("table", {}, el("tbody", {}, ...rows)));
  }

  _showLabels(texts, { data }) {
    const rows = data.map(({ index, label, probs }) =>
      el("tr", {}, el("td", {}, texts[index]), el("td", {}, label), el("td", { class: "number" }, percent(Math.max(...probs)))),
    );
    replace(this._result, el("table", {}, el("tbody", {}, ...rows)));
  }
}
