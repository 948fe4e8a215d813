// Completion: a prompt as it is, and what the model makes of it.

import { el } from "../core/dom.js";
import { AnswersView } from "./answers.js";
import { growing } from "./growing.js";
import { chosenAnswer } from "./state.js";

/** The prompt and its answers. */
export class Completion {
  /**
   * @param {import("./state.js").Store} store
   * @param {{run: () => void, stop: () => void, onInspect: (rid: string) => void}} actions
   */
  constructor(store, actions) {
    this._store = store;
    this._actions = actions;
    this._isRunning = false;
    this.field = growing(el("textarea", { rows: "5", id: "prompt-field", class: "prompt", placeholder: "The beginning of a text…", value: store.state.prompt }));
    this.field.addEventListener("input", () => {
      store.state.prompt = this.field.value;
      store.changed();
    });
    this._button = el("button", { type: "button", class: "button main", onclick: () => this.press() }, "Complete");
    this._append = el("button", { type: "button", class: "button", onclick: () => this._takeOver() }, "Add the answer to the prompt");
    this._place = el("div");
    this.element = el(
      "div",
      { class: "completion" },
      el("div", { class: "field" }, el("label", { for: "prompt-field" }, "Prompt"), this.field),
      el("div", { class: "row" }, this._button, this._append),
      this._place,
    );
    this.render();
  }

  /** Run, or stop what runs. */
  press() {
    if (this._isRunning) this._actions.stop();
    else this._actions.run();
  }

  /** Show the state as it is now. */
  render() {
    this.field.value = this._store.state.prompt;
    this._answers = new AnswersView(this._store.state.completion, {
      onInspect: this._actions.onInspect,
      retry: () => this._actions.run(),
      changed: () => this._store.changed(),
    });
    this._place.replaceChildren(this._answers.element);
    this._showButtons();
  }

  update(answer) {
    this._answers.update(answer);
  }

  setRunning(isRunning) {
    this._isRunning = isRunning;
    this._showButtons();
  }

  _showButtons() {
    this._button.textContent = this._isRunning ? "Stop" : "Complete";
    this._button.className = `button ${this._isRunning ? "stop" : "main"}`;
    this._append.hidden = this._isRunning || !chosenAnswer(this._store.state.completion)?.text;
  }

  _takeOver() {
    const { state } = this._store;
    state.prompt += chosenAnswer(state.completion).text;
    state.completion = { runs: [], run: 0 };
    this._store.changed();
    this.render();
    this.field.focus();
  }
}
