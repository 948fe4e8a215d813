// The runs of a message or of a completion: answers side by side, one of which counts, and a way to earlier runs.

import { el, replace } from "../core/dom.js";
import { AnswerView } from "./answer.js";

/** Shows the runs of a holder. */
export class AnswersView {
  /**
   * @param {{runs: import("./state.js").Run[], run: number}} holder
   * @param {{onInspect: Function, onToolResult?: Function, retry?: Function, changed: () => void}} actions
   */
  constructor(holder, actions) {
    this._holder = holder;
    this._actions = actions;
    this._views = new Map();
    this.element = el("div", { class: "answers" });
    this.render();
  }

  /** Show the run that is chosen, from scratch. */
  render() {
    const { runs, run } = this._holder;
    const shown = runs[run];
    this._views.clear();
    if (!shown) {
      replace(this.element);
      return;
    }
    const columns = shown.answers.map((answer, place) => this._column(shown, answer, place));
    replace(
      this.element,
      runs.length > 1 ? this._pager() : null,
      el("div", { class: `side-by-side${columns.length > 1 ? " several" : ""}` }, ...columns),
    );
  }

  /** An answer has changed. */
  update(answer) {
    this._views.get(answer)?.update();
  }

  _column(run, answer, place) {
    const view = new AnswerView(answer, this._actions);
    this._views.set(answer, view);
    if (run.answers.length === 1) return view.element;
    const isChosen = run.chosen === place;
    const pick = el(
      "button",
      { type: "button", class: "quiet pick", "aria-pressed": String(isChosen), onclick: () => this._pick(run, place) },
      isChosen ? "Goes on from here" : "Go on from this one",
    );
    const heading = el("header", {}, el("span", { class: "label" }, `Choice ${place + 1}`), pick);
    return el("div", { class: `column card${isChosen ? " chosen" : ""}` }, heading, view.element);
  }

  _pick(run, place) {
    run.chosen = place;
    this._actions.changed();
    this.render();
    this.element.querySelectorAll(".pick")[place]?.focus();
  }

  _pager() {
    const { runs, run } = this._holder;
    const step = (by, label, text) =>
      el(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-label": label,
          disabled: run + by < 0 || run + by >= runs.length,
          onclick: () => this._turn(by),
        },
        text,
      );
    return el(
      "div",
      { class: "pager", role: "group", "aria-label": "Answers to the same question" },
      step(-1, "Earlier answer", "‹"),
      el("span", { "aria-live": "polite" }, `${run + 1} of ${runs.length}`),
      step(1, "Later answer", "›"),
    );
  }

  _turn(by) {
    this._holder.run += by;
    this._actions.changed();
    this.render();
    const buttons = [...this.element.querySelectorAll(".pager button")];
    (buttons[by < 0 ? 0 : 1].disabled ? buttons.find((button) => !button.disabled) : buttons[by < 0 ? 0 : 1])?.focus();
  }
}
