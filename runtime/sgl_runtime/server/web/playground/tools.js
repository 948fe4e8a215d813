// Tools that the model may call, as the API takes them.

import { el, freshId } from "../core/dom.js";
import { CodeEditor } from "./code_editor.js";

const EXAMPLE = JSON.stringify(
  [
    {
      type: "function",
      function: {
        name: "get_weather",
        description: "The weather of a place",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      },
    },
  ],
  null,
  2,
);

/** The editor of tools. */
export class ToolsEditor {
  /** @param {import("./state.js").Store} store */
  constructor(store) {
    this._store = store;
    this._editor = new CodeEditor({ label: "Tools as JSON", rows: 6, onInput: (text) => this._write(text) });
    const id = freshId("tool-choice");
    this._choice = el(
      "select",
      { id, class: "narrow", onchange: () => this._choose() },
      ...["auto", "none", "required"].map((name) => el("option", {}, name)),
    );
    this._wrong = el("p", { class: "wrong", role: "status" });
    this.element = el(
      "div",
      { class: "stack" },
      el(
        "div",
        { class: "row" },
        el("label", { class: "label", for: id }, "Tool choice"),
        this._choice,
        el("button", { type: "button", class: "quiet", onclick: () => this._fill() }, "Example"),
      ),
      this._editor.element,
      this._wrong,
    );
    this.render();
  }

  /** Show the state as it is now. */
  render() {
    this._editor.value = this._store.state.tools.text;
    this._choice.value = this._store.state.tools.choice;
    this._check();
  }

  /** Show what is wrong with the tools; whether the field is theirs. */
  showError(field, message) {
    const isMine = field.startsWith("tool");
    if (isMine) this._wrong.textContent = message;
    return isMine;
  }

  _write(text) {
    this._store.state.tools.text = text;
    this._store.changed();
    this._check();
  }

  _choose() {
    this._store.state.tools.choice = this._choice.value;
    this._store.changed();
  }

  _fill() {
    this._editor.value = EXAMPLE;
    this._write(EXAMPLE);
  }

  _check() {
    this._wrong.textContent = "";
    const text = this._editor.value.trim();
    if (!text) return;
    try {
      if (!Array.isArray(JSON.parse(text))) this._wrong.textContent = "Give a list of tools, in square brackets.";
    } catch (error) {
      this._wrong.textContent = `This is no JSON yet: ${error.message}`;
    }
  }
}
