// The field for the next message, and the button that sends or stops.

import { el } from "../core/dom.js";
import { growing } from "./growing.js";

/** Sends what is written. */
export class Composer {
  /**
   * @param {import("./state.js").Store} store
   * @param {{send: (text: string) => void, stop: () => void}} actions
   */
  constructor(store, actions) {
    this._store = store;
    this._actions = actions;
    this._isRunning = false;
    this.field = growing(
      el("textarea", { rows: "1", id: "message-field", placeholder: "Write a message…", "aria-label": "Message", value: store.state.draft }),
    );
    this.field.addEventListener("input", () => {
      store.state.draft = this.field.value;
      store.changed();
    });
    this._button = el("button", { type: "submit", class: "button main" }, "Send");
    this.element = el(
      "form",
      { class: "composer card", "aria-label": "Next message" },
      this.field,
      el("div", { class: "composer-tools" }, el("span", { class: "hint" }, el("kbd", {}, "Ctrl"), " ", el("kbd", {}, "Enter")), this._button),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.press();
    });
  }

  /** Send, or stop what runs. */
  press() {
    if (this._isRunning) this._actions.stop();
    else this._actions.send(this.field.value);
  }

  /** Say whether something is being generated. */
  setRunning(isRunning) {
    this._isRunning = isRunning;
    this._button.textContent = isRunning ? "Stop" : "Send";
    this._button.className = `button ${isRunning ? "stop" : "main"}`;
  }

  /** Take the text away once it was sent. */
  clear() {
    this._store.state.draft = this.field.value = "";
    this.field.dispatchEvent(new Event("input"));
  }

  /** Show the state as it is now. */
  render() {
    this.field.value = this._store.state.draft;
  }
}
