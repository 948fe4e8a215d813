// A text field with line numbers, in which a place can be marked.

import { el, freshId } from "../core/dom.js";

/** An editor for a few dozen lines. */
export class CodeEditor {
  /** @param {{label: string, rows: number, onInput: (text: string) => void}} options */
  constructor({ label, rows, onInput }) {
    this._gutter = el("div", { class: "gutter", "aria-hidden": "true" });
    this.field = el("textarea", {
      id: freshId("editor"),
      class: "code",
      rows,
      wrap: "off",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      "aria-label": label,
    });
    this.element = el("div", { class: "code-editor" }, this._gutter, this.field);
    this._marked = null;
    this._numLines = 0;
    this.field.addEventListener("input", () => {
      this.mark(null);
      this._number();
      onInput(this.field.value);
    });
    this.field.addEventListener("scroll", () => (this._gutter.scrollTop = this.field.scrollTop));
  }

  get value() {
    return this.field.value;
  }

  set value(text) {
    this.field.value = text;
    this._marked = null;
    this._number();
  }

  /**
   * Mark the line of a place; null for none.
   * @param {number | null} offset Characters from the beginning.
   */
  mark(offset) {
    this._marked = offset === null ? null : lineOf(this.field.value, offset);
    this._numLines = -1;
    this._number();
    this.field.toggleAttribute("aria-invalid", false);
    if (offset !== null) this.field.setAttribute("aria-invalid", "true");
  }

  /** Put the cursor on a range. */
  select(begin, end) {
    this.field.focus();
    this.field.setSelectionRange(begin, end);
    const lineHeight = this.field.scrollHeight / Math.max(1, this.field.value.split("\n").length);
    this.field.scrollTop = Math.max(0, (lineOf(this.field.value, begin) - 3) * lineHeight);
  }

  _number() {
    const numLines = this.field.value.split("\n").length;
    if (numLines === this._numLines) return;
    this._numLines = numLines;
    const lines = Array.from({ length: numLines }, (_, line) =>
      el("span", { class: line === this._marked ? "marked" : null }, line + 1),
    );
    this._gutter.replaceChildren(...lines);
    this._gutter.scrollTop = this.field.scrollTop;
  }
}

/** The line, from 0 on, in which a place is. */
export function lineOf(text, offset) {
  return text.slice(0, offset).split("\n").length - 1;
}

/** The place of a line and a column, both from 1 on. */
export function offsetOf(text, line, column = 1) {
  const before = text.split("\n").slice(0, line - 1);
  return before.reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
}
