// The playground: conversation or completion, settings, and the requests between them.

import { el, replace } from "../core/dom.js";
import { announce, notice } from "../core/notices.js";
import { Completion } from "./completion.js";
import { Composer } from "./composer.js";
import { ConstraintEditor } from "./constraint.js";
import { Conversation } from "./conversation.js";
import { requestOf, SettingError } from "./request.js";
import { News } from "./news.js";
import { newRid, Run } from "./run.js";
import { ProbabilityForm, SamplingForm } from "./settings.js";
import { showSnippets } from "./snippets.js";
import { Speaker } from "./speaker.js";
import { emptyState, newMessage, read, Store } from "./state.js";
import { ToolsEditor } from "./tools.js";

const NARROW = matchMedia("(max-width: 960px)");

/** Builds the view, and runs requests. */
export class Playground {
  /**
   * @param {HTMLElement} root
   * @param {{model: object, onInspect: (rid: string) => void}} options
   */
  constructor(root, { model, onInspect }) {
    this._model = model;
    this._store = new Store();
    if (!model.has_chat_template && !this._store.state.messages.length) this._store.state.mode = "completion";
    this._run = null;
    this._answered = null;
    this._conversation = new Conversation(this._store, {
      mayAnswer: () => this._isFree() && this._requestOf({}) !== null,
      answer: (message) => this._answer(message),
      removed: (message) => message === this._answered && this.stop(),
      onInspect,
    });
    this._composer = new Composer(this._store, { send: (text) => this._send(text), stop: () => this.stop() });
    this._completion = new Completion(this._store, { run: () => this._complete(), stop: () => this.stop(), onInspect });
    this._sampling = new SamplingForm(this._store);
    this._constraint = new ConstraintEditor(this._store);
    this._tools = new ToolsEditor(this._store);
    this._probabilities = new ProbabilityForm(this._store);
    this._scroller = el("div", { class: "scroller", onscroll: () => this._conversation.noteScroll() });
    this._settings = this._settingsPanel();
    const desk = el("div", { class: "desk" }, this._toolbar(), this._scroller, this._composer.element);
    this._frame = el("div", { class: "playground" }, desk, this._settings);
    replace(root, this._frame);
    root.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.defaultPrevented) return;
      event.preventDefault();
      // Who writes on while an answer comes does not mean to end it.
      if (this._isFree()) (this._store.state.mode === "chat" ? this._composer : this._completion).press();
    });
    this._render();
  }

  /** End what is being generated; whether there was anything. */
  stop() {
    this._run?.stop();
    return this._run !== null;
  }

  /** Whether a request can begin; where one runs, that is said. */
  _isFree() {
    if (this._run) notice("An answer is being generated; Escape stops it.");
    return this._run === null;
  }

  /** Put the cursor where the next message is written. */
  focusMessage() {
    (this._store.state.mode === "chat" ? this._composer : this._completion).field.focus();
  }

  _toolbar() {
    this._modes = ["chat", "completion"].map((mode) =>
      el("input", { type: "radio", name: "mode", value: mode, onchange: () => this._setMode(mode) }),
    );
    const labels = ["Chat", "Completion"].map((text, place) => el("label", {}, this._modes[place], el("span", {}, text)));
    const file = el("input", { type: "file", accept: "application/json,.json", hidden: true, onchange: () => this._import(file) });
    const button = (text, onclick) => el("button", { type: "button", class: "quiet", onclick }, text);
    this._toggle = el("button", { type: "button", class: "quiet toggle", "aria-controls": "settings", onclick: () => this._showSettings(this._settings.hidden) }, "Settings");
    return el(
      "div",
      { class: "toolbar" },
      el("div", { class: "segments", role: "radiogroup", "aria-label": "Mode" }, ...labels),
      el(
        "div",
        { class: "toolbar-buttons" },
        button("New", () => this._clear()),
        button("Code", () => this._showCode()),
        button("Export", () => this._export()),
        button("Import", () => file.click()),
        file,
        this._toggle,
      ),
    );
  }

  _settingsPanel() {
    const group = (title, isOpen, part) => el("details", { class: "group", open: isOpen }, el("summary", {}, el("h3", {}, title)), part.element);
    this._toolsGroup = group("Tools", false, this._tools);
    const panel = el(
      "aside",
      { class: "settings", id: "settings", "aria-label": "Settings" },
      group("Constraint", true, this._constraint),
      group("Sampling", true, this._sampling),
      group("Token probabilities", true, this._probabilities),
      this._toolsGroup,
    );
    NARROW.addEventListener("change", () => this._showSettings(false));
    queueMicrotask(() => this._showSettings(false));
    return panel;
  }

  /** Where there is room for one of them alone, show the settings or the conversation. */
  _showSettings(isOpen) {
    this._settings.hidden = NARROW.matches && !isOpen;
    this._frame.classList.toggle("settings-open", isOpen);
    this._toggle.setAttribute("aria-expanded", String(!this._settings.hidden));
    if (isOpen) this._settings.querySelector("summary").focus();
  }

  _setMode(mode) {
    this._store.state.mode = mode;
    this._store.changed();
    this._render();
  }

  _render() {
    const isChat = this._store.state.mode === "chat";
    for (const radio of this._modes) radio.checked = radio.value === this._store.state.mode;
    const noTemplate = isChat && !this._model.has_chat_template;
    const warning = noTemplate ? el("p", { class: "warning" }, "This model has no chat template: only completions will work.") : null;
    replace(this._scroller, warning, isChat ? this._conversation.element : this._completion.element);
    this._composer.element.hidden = !isChat;
    this._toolsGroup.hidden = !isChat;
    for (const part of [this._conversation, this._completion, this._composer, this._sampling, this._constraint, this._tools, this._probabilities]) {
      part.render();
    }
    this._conversation.scrollToEnd();
  }

  _send(text) {
    const { messages } = this._store.state;
    const isNew = text.trim() !== "";
    if (!isNew && (!messages.length || messages.at(-1).role === "assistant")) return;
    // Where a setting is wrong, the text stays in its field.
    if (this._requestOf({}) === null) return;
    if (isNew) {
      this._conversation.add(newMessage("user", text));
      this._composer.clear();
    }
    const message = newMessage("assistant");
    this._conversation.add(message);
    this._answer(message);
  }

  /** Have a message answered, by what stands before it. */
  async _answer(message) {
    const { messages } = this._store.state;
    const before = messages.slice(0, messages.indexOf(message));
    await this._start(message, { messages: before }, {
      render: () => this._conversation.renderMessage(message),
      update: (answer) => this._conversation.update(message, answer),
    });
  }

  async _complete() {
    await this._start(this._store.state.completion, {}, {
      render: () => this._completion.render(),
      update: (answer) => this._completion.update(answer),
    });
  }

  /** Run a request whose answers are a new run of `holder`. */
  async _start(holder, options, { render, update }) {
    if (!this._isFree()) return;
    const request = this._requestOf(options);
    if (request === null) return;
    this._sampling.clearErrors();
    const speaker = new Speaker();
    const news = new News((answer) => {
      update(answer);
      speaker.follow(answer);
    });
    const run = new Run(request, (answer) => news.add(answer));
    this._run = run;
    this._answered = holder;
    holder.runs.push({ answers: run.answers, chosen: 0 });
    holder.run = holder.runs.length - 1;
    this._setRunning(true);
    render();
    announce("The answer begins.");
    const numAnswers = run.answers.length;
    await run.finish();
    if (run.answers.length < numAnswers) render();
    news.flush();
    this._run = this._answered = null;
    this._setRunning(false);
    const error = run.answers[0].error;
    if (error?.param) this._showSettingError(error.param, error.message);
    this._store.changed();
  }

  /** The request as things stand; null, and that is said, where a setting is wrong. */
  _requestOf(options) {
    try {
      return requestOf(this._store.state, { model: this._model.served_model_name, rid: newRid(), ...options });
    } catch (error) {
      this._tellSettingError(error);
      return null;
    }
  }

  _tellSettingError(error) {
    if (!(error instanceof SettingError)) throw error;
    this._showSettingError(error.field, error.message);
    notice(error.message);
  }

  _setRunning(isRunning) {
    this._composer.setRunning(isRunning);
    this._completion.setRunning(isRunning);
  }

  _showSettingError(field, message) {
    const parts = [this._sampling, this._constraint, this._tools];
    const found = parts.find((part) => part.showError(field, message));
    if (!found) return;
    found.element.closest("details").open = true;
    if (NARROW.matches) this._showSettings(true);
    found.element.scrollIntoView({ block: "nearest" });
  }

  _clear() {
    this.stop();
    const { sampling, constraint, tools, probabilities, mode, system } = this._store.state;
    const before = this._store.state;
    this._store.put({ ...emptyState(), sampling, constraint, tools, probabilities, mode, system });
    this._render();
    if (!before.messages.length && !before.prompt) return;
    const undo = el("button", { type: "button", class: "button small", onclick: () => this._restore(before, bar) }, "Take it back");
    const bar = el("p", { class: "undo" }, "The conversation was cleared; settings stay. ", undo);
    this._scroller.prepend(bar);
  }

  _restore(state, bar) {
    bar.remove();
    this._store.put(state);
    this._render();
  }

  _showCode() {
    try {
      showSnippets(this._store.state, this._model.served_model_name);
    } catch (error) {
      this._tellSettingError(error);
    }
  }

  _export() {
    const text = JSON.stringify(this._store.state, null, 1);
    const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    el("a", { href: url, download: "sgl-playground.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  async _import(file) {
    const state = read(await file.files[0].text());
    file.value = "";
    if (!state) {
      notice("This file holds no playground: choose one that Export wrote.");
      return;
    }
    this._store.put(state);
    this._render();
  }
}
