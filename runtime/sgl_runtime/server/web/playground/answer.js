// One answer: its text or tokens, thinking, tool calls, figures, and what can be done with it.

import { el, replace } from "../core/dom.js";
import { count, decimal, duration, percent, plural } from "../core/format.js";
import { copyText } from "../core/notices.js";
import { problemCard } from "../core/problem.js";
import { answerRid } from "./run.js";
import { TokenText } from "./tokens.js";

const ENDS = {
  stop: "ended by itself",
  length: "cut at the token limit",
  tool_calls: "called tools",
  abort: "stopped",
  left: "left unfinished",
};

/** Shows an answer, and follows it as it grows. */
export class AnswerView {
  /**
   * @param {import("./state.js").Answer} answer
   * @param {{onInspect: (rid: string) => void, onToolResult?: (call: object) => void, retry?: () => void}} actions
   */
  constructor(answer, actions) {
    this._answer = answer;
    this._actions = actions;
    this._reasoning = el("pre", { class: "answer-text" });
    this._thinking = el("details", { class: "thinking", hidden: true }, el("summary", {}, "Thinking"), this._reasoning);
    this._plain = el("div", { class: "answer-text" });
    this._text = document.createTextNode("");
    this._plain.append(this._text);
    this._tokens = new TokenText();
    this._calls = el("div", { class: "calls" });
    this._problem = el("div");
    this._figures = el("p", { class: "figures" });
    this.element = el(
      "div",
      { class: "answer" },
      this._thinking,
      this._plain,
      this._tokens.element,
      this._calls,
      this._problem,
      this._figures,
    );
    this.update();
  }

  /** Show what has come since. */
  update() {
    const answer = this._answer;
    this.element.classList.toggle("writing", !answer.finish && !answer.error);
    if (answer.reasoning) {
      if (this._thinking.hidden) this._thinking.open = !answer.text;
      this._thinking.hidden = false;
      this._reasoning.textContent = answer.reasoning;
    }
    this._showText(answer);
    this._showEnd(answer);
  }

  _showText(answer) {
    // Tokens show the text as the model wrote it; where parts of that were split off, they are listed apart.
    const isSplit = Boolean(answer.reasoning || answer.calls.length);
    const hasTokens = answer.tokens.length > 0;
    this._plain.hidden = hasTokens && !isSplit;
    if (this._text.data !== answer.text) this._text.data = answer.text;
    if (!hasTokens) {
      this._tokens.element.hidden = true;
      return;
    }
    this._tokens.element.hidden = false;
    this._tokens.update(answer);
    if (isSplit && !this._apart) {
      this._apart = el("details", { class: "thinking" }, el("summary", {}, "All tokens, as the model wrote them"));
      this._tokens.element.replaceWith(this._apart);
      this._apart.append(this._tokens.element);
    }
  }

  _showEnd(answer) {
    if (this._calls.childElementCount !== answer.calls.length || answer.finish) {
      replace(this._calls, ...answer.calls.map((call) => this._call(call)));
    }
    if (answer.error) {
      const retry = this._actions.retry;
      const again = retry ? [el("button", { type: "button", class: "button small", onclick: retry }, "Try again")] : [];
      replace(this._problem, problemCard(answer.error, ...again));
    }
    const inspect = el(
      "button",
      { type: "button", class: "quiet", onclick: () => this._actions.onInspect(answerRid(answer)) },
      "Inspect",
    );
    const copy = el("button", { type: "button", class: "quiet", onclick: () => copyText(answer.text, "Answer") }, "Copy");
    replace(this._figures, ...figures(answer), answer.finish ? copy : null, answer.finish && answer.rid ? inspect : null);
  }

  _call(call) {
    const onToolResult = this._actions.onToolResult;
    return el(
      "div",
      { class: "call" },
      el("p", {}, "calls ", el("code", {}, call.name)),
      el("pre", {}, pretty(call.arguments)),
      onToolResult && this._answer.finish
        ? el("button", { type: "button", class: "button small", onclick: () => onToolResult(call) }, "Add a result")
        : null,
    );
  }
}

/** The figures of an answer, as parts of a line. */
function figures(answer) {
  const parts = [];
  const add = (text, title) => parts.push(el("span", { title }, text));
  if (answer.numTokens) add(plural(answer.numTokens, "token"), "Tokens of the answer");
  if (answer.numTokens > 1 && answer.totalS > 0) {
    add(`${decimal((answer.numTokens - 1) / answer.totalS)} tokens/s`, "After the first token, as this page saw them come");
  }
  if (answer.firstS !== null) add(`first after ${duration(answer.firstS)}`, "Time to first token, as this page saw it");
  if (answer.usage) {
    const { prompt, cached } = answer.usage;
    const share = cached ? `, ${count(cached)} cached (${percent(cached / prompt)})` : "";
    add(`prompt ${count(prompt)}${share}`, "Tokens of the prompt, and how many were in the prefix cache");
  }
  if (answer.finish) add(ENDS[answer.finish] ?? answer.finish, "Why it ended");
  return parts;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
