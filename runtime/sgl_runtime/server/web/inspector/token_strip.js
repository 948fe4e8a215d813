// Tokens of a prompt or an output as the model saw them, with their ids; more of them come when asked for.

import { el, replace } from "../core/dom.js";
import { count, plural, visibleToken } from "../core/format.js";
import { focusItem, makeRoving } from "../core/roving.js";

const SELECTOR = ".piece";

/** Shows tokens; the one that is pointed at or focused is told below. */
export class TokenStrip {
  /**
   * @param {string} title
   * @param {{total: number, begin: number, ids: number[], texts: string[], special: number[], forced?: number[]}} window
   * @param {{classOf: (place: number) => string, wordsOf: (place: number) => string, more: (begin: number) => Promise<object>}} how
   */
  constructor(title, window, how) {
    this._how = how;
    this._total = window.total;
    this._numShown = 0;
    this._told = el("p", { class: "told", "aria-live": "polite" }, "Point at a token, or go through them with the arrow keys, to see its id.");
    this._list = el("div", { class: "strip", role: "group", "aria-label": title });
    this._more = el("button", { type: "button", class: "button small", onclick: () => this._load() });
    this.element = el("div", { class: "strip-box" }, this._list, this._told, this._more);
    makeRoving(this._list, SELECTOR);
    for (const kind of ["focusin", "pointerover"]) this._list.addEventListener(kind, (event) => this._tell(event.target));
    this._list.addEventListener("click", (event) => {
      const item = event.target.closest(SELECTOR);
      if (item) focusItem(this._list, SELECTOR, item);
    });
    this._add(window);
  }

  _add(window) {
    const special = new Set(window.special);
    const items = window.ids.map((id, index) => {
      const place = window.begin + index;
      const text = window.texts[index];
      const classes = ["piece", place % 2 ? "odd" : "", special.has(place) ? "special" : "", this._how.classOf(place)];
      const words = [`token ${count(place)}`, `id ${id}`, special.has(place) ? "special" : "", this._how.wordsOf(place)];
      const item = el(
        "span",
        { class: classes.filter(Boolean).join(" "), role: "img", "aria-label": `${visibleToken(text)}, ${words.filter(Boolean).join(", ")}`, "data-text": text, "data-told": words.filter(Boolean).join(" · ") },
        ...linesOf(text),
      );
      item.tabIndex = place === 0 ? 0 : -1;
      return item;
    });
    this._list.append(...items);
    this._numShown = window.begin + window.ids.length;
    const left = this._total - this._numShown;
    this._more.hidden = left <= 0;
    this._more.textContent = `Show more (${plural(left, "token")} left)`;
  }

  async _load() {
    this._more.disabled = true;
    this._add(await this._how.more(this._numShown));
    this._more.disabled = false;
  }

  _tell(target) {
    const item = target.closest(SELECTOR);
    if (!item) return;
    replace(this._told, el("code", {}, visibleToken(item.dataset.text)), ` ${item.dataset.told}`);
  }
}

/** Line breaks are shown, and break the line. */
function linesOf(text) {
  if (text === "") return [el("span", { class: "nothing" }, "·")];
  return text.split(/(\n)/).filter(Boolean).map((part) => (part === "\n" ? el("span", { class: "break" }, "⏎\n") : part));
}
