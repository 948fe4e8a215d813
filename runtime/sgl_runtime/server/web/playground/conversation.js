// The messages of a chat.

import { el, replace } from "../core/dom.js";
import { growing } from "./growing.js";
import { MessageView } from "./message.js";
import { newMessage } from "./state.js";

/** Shows the messages, and keeps the end in sight while an answer grows. */
export class Conversation {
  /**
   * @param {import("./state.js").Store} store
   * @param {{mayAnswer: () => boolean, answer: (message: object) => void, removed: (message: object) => void,
   *   onInspect: (rid: string) => void}} actions
   */
  constructor(store, actions) {
    this._store = store;
    this._actions = actions;
    this._views = new Map();
    this._isAtEnd = true;
    this._system = growing(
      el("textarea", { rows: "1", id: "system-field", placeholder: "How the model is to behave (optional)", value: store.state.system }),
    );
    this._system.addEventListener("input", () => {
      store.state.system = this._system.value;
      store.changed();
    });
    this._list = el("div", { class: "messages" });
    this.element = el(
      "div",
      { class: "conversation" },
      el("div", { class: "field system" }, el("label", { for: "system-field" }, "System prompt"), this._system),
      this._list,
    );
  }

  /** Show the state as it is now. */
  render() {
    this._system.value = this._store.state.system;
    this._views.clear();
    replace(this._list, ...this._store.state.messages.map((message) => this._view(message).element));
    this._showEmpty();
  }

  /** Add a message to the end. */
  add(message) {
    this._store.state.messages.push(message);
    this._store.changed();
    this._list.querySelector(".empty")?.remove();
    this._list.append(this._view(message).element);
    this.scrollToEnd();
  }

  /** An answer of a message has changed. */
  update(message, answer) {
    this._views.get(message)?.update(answer);
    if (this._isAtEnd) this.scrollToEnd();
  }

  /** A message has a new run. */
  renderMessage(message) {
    this._views.get(message)?.render();
    if (this._isAtEnd) this.scrollToEnd();
  }

  /** The reader has scrolled: an answer that grows is followed only from the end. */
  noteScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.element.parentElement ?? this.element;
    this._isAtEnd = scrollHeight - scrollTop - clientHeight < 60;
  }

  scrollToEnd() {
    const scroller = this.element.parentElement;
    if (scroller) scroller.scrollTop = scroller.scrollHeight;
    this._isAtEnd = true;
  }

  _view(message) {
    const view = new MessageView(message, {
      changed: () => this._store.changed(),
      remove: (removed) => this._remove(removed),
      regenerate: (answered) => this._actions.mayAnswer() && this._actions.answer(answered),
      branch: (asked) => this._answerAgain(asked),
      onInspect: this._actions.onInspect,
      onToolResult: (call) => this._addResult(message, call),
    });
    this._views.set(message, view);
    return view;
  }

  _remove(message) {
    const { messages } = this._store.state;
    const place = messages.indexOf(message);
    messages.splice(place, 1);
    this._actions.removed(message);
    this._store.changed();
    const next = messages[Math.min(place, messages.length - 1)];
    this._views.get(message)?.element.remove();
    this._views.delete(message);
    this._showEmpty();
    const focused = next ? this._views.get(next).element.querySelector(".message-tools button") : null;
    (focused ?? document.getElementById("message-field"))?.focus();
  }

  /** Have the answer to a question anew: the one that follows gets another run, or there is a first one. */
  _answerAgain(message) {
    if (!this._actions.mayAnswer()) return;
    const { messages } = this._store.state;
    const place = messages.indexOf(message) + 1;
    if (messages[place]?.role === "assistant") {
      this._actions.answer(messages[place]);
      return;
    }
    const answer = newMessage("assistant");
    messages.splice(place, 0, answer);
    this.render();
    this._actions.answer(answer);
  }

  _addResult(message, call) {
    const result = { ...newMessage("tool", ""), tool_call_id: call.id };
    const { messages } = this._store.state;
    messages.splice(messages.indexOf(message) + 1, 0, result);
    this._store.changed();
    this.render();
    const view = this._views.get(result).element;
    [...view.querySelectorAll(".message-tools button")].find((button) => button.textContent === "Edit").click();
  }

  _showEmpty() {
    if (this._store.state.messages.length) return;
    const tip = el("p", {}, "Write a message below. Settings, constraints and tools are beside it.");
    replace(this._list, el("div", { class: "empty" }, el("h2", {}, "Nothing said yet"), tip));
  }
}
