// The constraint of a request, checked by the server while it is written.

import { ApiError, post } from "../core/api.js";
import { el, replace } from "../core/dom.js";
import { count, duration } from "../core/format.js";
import { CodeEditor, lineOf, offsetOf } from "./code_editor.js";
import { EXAMPLES } from "./constraint_examples.js";
import { rangeOf } from "./json_places.js";
import { nativeConstraint } from "./request.js";

const KINDS = [
  ["none", "None"],
  ["json_schema", "Schema"],
  ["regex", "Regex"],
  ["choices", "Choices"],
  ["ebnf", "EBNF"],
];
const HINTS = {
  json_schema: "The answer fits this JSON Schema.",
  regex: "The whole answer matches.",
  choices: "The answer is one of these lines.",
  ebnf: "A grammar as GBNF (root ::= …) or Lark (start: …).",
};
const CHECK_DELAY_MS = 350;

/** The editor of the constraint. */
export class ConstraintEditor {
  /** @param {import("./state.js").Store} store */
  constructor(store) {
    this._store = store;
    this._timer = null;
    this._control = null;
    this._radios = KINDS.map(([kind]) =>
      el("input", { type: "radio", name: "constraint-kind", value: kind, onchange: () => this._take(kind) }),
    );
    const segments = KINDS.map(([, label], place) => el("label", {}, this._radios[place], el("span", {}, label)));
    this._editor = new CodeEditor({ label: "Constraint", rows: 9, onInput: (text) => this._write(text) });
    this._hint = el("span", { class: "hint" });
    this._examples = el("select", { "aria-label": "Examples", class: "examples", onchange: () => this._fill() });
    this._lenient = el("input", { type: "checkbox", onchange: () => this._setLenient() });
    this._lenientRow = el("label", { class: "check" }, this._lenient, el("span", {}, "Leave out keywords that cannot be enforced"));
    this._verdict = el("div", { class: "verdict", role: "status", "aria-live": "polite" });
    this._editor.field.setAttribute("aria-describedby", (this._verdict.id = "constraint-verdict"));
    this._parts = el(
      "div",
      { class: "stack" },
      el("div", { class: "row" }, this._hint, this._examples),
      this._editor.element,
      this._lenientRow,
      this._verdict,
    );
    this.element = el(
      "fieldset",
      { class: "plain stack" },
      el("legend", { class: "only-heard" }, "Constraint"),
      el("div", { class: "segments", role: "radiogroup", "aria-label": "Kind of constraint" }, ...segments),
      this._parts,
    );
    this.render();
  }

  /** Show the state as it is now, and check it. */
  render() {
    const { kind, texts, lenient } = this._store.state.constraint;
    for (const radio of this._radios) radio.checked = radio.value === kind;
    this._parts.hidden = kind === "none";
    if (kind === "none") {
      this._cancel();
      return;
    }
    this._hint.textContent = HINTS[kind];
    this._editor.value = texts[kind];
    this._lenient.checked = lenient;
    this._lenientRow.hidden = kind !== "json_schema";
    const options = EXAMPLES[kind].map(([name], place) => el("option", { value: place }, name));
    replace(this._examples, el("option", { value: "" }, "Examples…"), ...options);
    this._check(0);
  }

  /**
   * Show what the server says when the request itself was refused.
   * @returns {boolean} Whether the field is the constraint.
   */
  showError(field, message) {
    const { kind } = this._store.state.constraint;
    const isMine = field === kind || (kind === "json_schema" && field.startsWith("response_format"));
    if (isMine) this._show({ valid: false, problems: [{ message, place: placeIn(message) }] });
    return isMine;
  }

  _take(kind) {
    this._store.state.constraint.kind = kind;
    this._store.changed();
    this.render();
  }

  _write(text) {
    const { constraint } = this._store.state;
    constraint.texts[constraint.kind] = text;
    this._store.changed();
    this._check(CHECK_DELAY_MS);
  }

  _setLenient() {
    this._store.state.constraint.lenient = this._lenient.checked;
    this._store.changed();
    this._check(0);
  }

  _fill() {
    const example = EXAMPLES[this._store.state.constraint.kind][Number(this._examples.value)];
    if (this._examples.value === "" || !example) return;
    this._editor.value = example[1];
    this._examples.value = "";
    this._write(example[1]);
  }

  _cancel() {
    clearTimeout(this._timer);
    this._control?.abort();
    this._control = null;
  }

  _check(delay) {
    this._cancel();
    const wanted = nativeConstraint(this._store.state);
    if (wanted === null) {
      this._editor.mark(null);
      replace(this._verdict, el("span", { class: "hint" }, "Empty: nothing is constrained."));
      return;
    }
    const local = jsonProblem(wanted.json_schema);
    if (local) {
      this._show({ valid: false, problems: [local] });
      return;
    }
    this._timer = setTimeout(() => this._ask(wanted), delay);
  }

  async _ask(wanted) {
    const control = (this._control = new AbortController());
    this._verdict.classList.add("asking");
    try {
      this._show(await post("validate_grammar", wanted, { signal: control.signal }));
    } catch (error) {
      if (control.signal.aborted) return;
      const message = error instanceof ApiError ? error.message : String(error);
      replace(this._verdict, el("span", { class: "hint" }, `Not checked: ${message}`));
    } finally {
      if (this._control === control) this._verdict.classList.remove("asking");
    }
  }

  _show(reply) {
    this._verdict.classList.remove("asking");
    this._editor.mark(null);
    if (reply.valid) replace(this._verdict, ...goodLines(reply));
    else {
      const note = reply.note ? el("p", { class: "hint" }, reply.note) : null;
      replace(this._verdict, ...reply.problems.slice(0, 5).map((problem) => this._problem(problem)), note);
    }
    const warnings = (reply.unknown ?? []).map(({ path, meant }) =>
      el("p", { class: "warning" }, `${path} has no effect${meant ? `; did you mean ${meant}?` : ""}`),
    );
    this._verdict.append(...warnings);
    const range = reply.valid ? null : this._range(reply.problems[0]?.place);
    if (range) this._editor.mark(range[0]);
  }

  _problem({ message, place }) {
    const range = this._range(place);
    const line = range ? lineOf(this._editor.value, range[0]) + 1 : null;
    const go = () => this._editor.select(...range);
    return el(
      "div",
      { class: "wrong" },
      el("span", {}, "✗ "),
      range ? el("button", { type: "button", class: "to-place", onclick: go }, `Line ${line}`) : null,
      range ? ": " : null,
      message,
    );
  }

  /** Begin and end of a place in the text; null where it says nothing. */
  _range(place) {
    const text = this._editor.value;
    const { kind } = this._store.state.constraint;
    if (!place) return null;
    if (place.path && kind === "json_schema") {
      return jsonProblem(text) ? null : rangeOf(text, place.path);
    }
    if (place.line) return lineRange(text, offsetOf(text, place.line, place.column));
    if (place.position !== undefined && kind === "regex") return [place.position, place.position + 1];
    return null;
  }
}

function goodLines(reply) {
  const parts = [reply.backend === "fsm" ? "automaton" : reply.backend];
  if (reply.states !== null) parts.push(`${count(reply.states)} states`);
  if (reply.seconds !== null) parts.push(`${duration(reply.seconds)}`);
  const left = (reply.relaxed ?? []).map(({ path, reason }) => el("p", { class: "warning" }, `Left out: ${path} ${reason}`));
  return [el("p", { class: "right" }, `✓ valid · ${parts.join(" · ")}`), reply.note ? el("p", { class: "hint" }, reply.note) : null, ...left];
}

/** What the browser's own reader says of JSON, with a line; null where it is well formed. */
function jsonProblem(text) {
  if (text === undefined) return null;
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    const found = /position (\d+)/.exec(error.message);
    const offset = found ? Number(found[1]) : text.length;
    const line = lineOf(text, offset) + 1;
    const column = offset - offsetOf(text, line) + 1;
    return { message: `This is no JSON yet: ${error.message}`, place: { line, column } };
  }
}

function placeIn(message) {
  const path = /#\/[^\s'",;]*/.exec(message);
  return path ? { path: path[0] } : {};
}

function lineRange(text, offset) {
  const end = text.indexOf("\n", offset);
  return [Math.min(offset, text.length), end < 0 ? text.length : end];
}
