// One message of the chat: shown, edited, taken away, answered anew.

import { el, replace } from "../core/dom.js";
import { copyText } from "../core/notices.js";
import { AnswersView } from "./answers.js";
import { growing } from "./growing.js";
import { chosenAnswer, messageText } from "./state.js";

const ROLES = ["user", "assistant", "system", "tool"];

/** Shows a message. */
export class MessageView {
  /**
   * @param {object} message
   * @param {{changed: () => void, remove: (message: object) => void, regenerate: (message: object) => void,
   *   branch: (message: object) => void, onInspect: Function, onToolResult: Function}} actions
   */
  constructor(message, actions) {
    this.message = message;
    this._actions = actions;
    this._body = el("div", { class: "message-body" });
    this._role = el("span", { class: "role" }, message.role);
    this._tools = el("div", { class: "message-tools" });
    this.element = el(
      "article",
      { class: `message ${message.role}`, "aria-label": `Message of ${message.role}` },
      el("header", {}, this._role, this._tools),
      this._body,
    );
    this._showBody();
  }

  /** An answer of this message has changed. */
  update(answer) {
    this._answers?.update(answer);
    this.element.setAttribute("aria-busy", String(!answer.finish && !answer.error));
  }

  /** Show its newest run. */
  render() {
    this._showBody();
  }

  _showBody() {
    const { message } = this;
    this._role.textContent = message.role;
    this._answers = null;
    if (message.runs.length) {
      this._answers = new AnswersView(message, {
        onInspect: this._actions.onInspect,
        onToolResult: this._actions.onToolResult,
        retry: () => this._actions.regenerate(message),
        changed: this._actions.changed,
      });
      replace(this._body, this._answers.element);
    } else {
      replace(this._body, el("div", { class: "answer-text" }, message.content));
    }
    this._showTools();
  }

  _showTools() {
    const { message } = this;
    const button = (text, onclick, extra = "") => el("button", { type: "button", class: `quiet ${extra}`, onclick }, text);
    replace(
      this._tools,
      message.role === "assistant" ? button("Regenerate", () => this._actions.regenerate(message)) : null,
      message.role === "user" ? button("Answer again", () => this._actions.branch(message)) : null,
      button("Edit", () => this._edit()),
      message.runs.length ? null : button("Copy", () => copyText(messageText(message), "Message")),
      button("Delete", () => this._actions.remove(message), "danger"),
    );
  }

  _edit() {
    const { message } = this;
    const text = growing(el("textarea", { rows: "2", "aria-label": "Text of the message", value: messageText(message) }));
    const role = el("select", { "aria-label": "Role" }, ...ROLES.map((name) => el("option", { selected: name === message.role }, name)));
    const id = el("input", { type: "text", "aria-label": "Id of the tool call", placeholder: "id of the tool call", value: message.tool_call_id ?? "" });
    const close = () => {
      this._showBody();
      this._tools.querySelector("button")?.focus();
    };
    const keep = () => {
      this._keep(role.value, text.value, id.value);
      close();
    };
    const showId = () => (id.hidden = role.value !== "tool");
    role.addEventListener("change", showId);
    showId();
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.preventDefault();
        close();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        event.stopPropagation();
        keep();
      }
    });
    replace(
      this._body,
      text,
      el(
        "div",
        { class: "edit-tools" },
        role,
        id,
        el("button", { type: "button", class: "button small main", onclick: keep }, "Keep"),
        el("button", { type: "button", class: "button small", onclick: close }, "Leave as it was"),
      ),
    );
    replace(this._tools);
    text.focus();
  }

  /** What was edited is a plain text then, without the tokens that it came from. */
  _keep(role, content, callId) {
    const { message } = this;
    const isSame = role === message.role && content === messageText(message);
    if (!isSame) {
      const answer = chosenAnswer(message);
      if (answer && role === "assistant") Object.assign(answer, { text: content, tokens: [], forced: [], reasoning: "" });
      else Object.assign(message, { content, runs: [], run: 0 });
      message.role = role;
      this.element.className = `message ${role}`;
    }
    if (role === "tool") message.tool_call_id = callId;
    this._actions.changed();
  }
}
