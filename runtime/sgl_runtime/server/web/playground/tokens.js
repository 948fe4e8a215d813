// Tokens as shaded text: one stop of the Tab key, arrow keys between them, and a card with what else could have come.

import { el } from "../core/dom.js";
import { percent, visibleToken } from "../core/format.js";
import { focusItem, makeRoving } from "../core/roving.js";
import { TokenCard } from "./token_card.js";

const SELECTOR = ".token";
// From which probability on a token has which shade; what is likelier than the first has none.
const SHADES = [0.9, 0.7, 0.5, 0.3, 0.1];

/** The shade of a probability: 0 for none, up to 5 for the unlikeliest. */
export function shadeOf(probability) {
  const place = SHADES.findIndex((limit) => probability >= limit);
  return place < 0 ? SHADES.length : place;
}

/** The tokens of one answer. */
export class TokenText {
  constructor() {
    this.element = el("div", { class: "token-text", role: "group", "aria-label": "Answer, token by token" });
    this._card = new TokenCard();
    this._tokens = [];
    this._numShown = 0;
    this._length = 0;
    makeRoving(this.element, SELECTOR, {
      onMove: (item) => this._card.isOpen && this._open(item),
      onPick: (item) => this._open(item),
    });
    this.element.addEventListener("click", (event) => {
      const item = event.target.closest(SELECTOR);
      if (!item || String(getSelection())) return;
      focusItem(this.element, SELECTOR, item);
      this._open(item);
    });
    this.element.addEventListener("focusout", (event) => {
      if (!this.element.contains(event.relatedTarget)) this._card.close();
    });
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this._card.isOpen) {
        event.preventDefault();
        event.stopPropagation();
        this._card.close();
      }
    });
  }

  /**
   * Show tokens that have come.
   * @param {import("./state.js").Answer} answer
   */
  update(answer) {
    this._tokens = answer.tokens;
    const fresh = this._tokens.slice(this._numShown);
    this.element.append(...fresh.map((token, place) => this._item(token, this._numShown + place)));
    this._numShown = this._tokens.length;
    if (answer.finish) this._markCut(answer.text);
    for (const place of answer.forced) this._markForced(place);
  }

  _item([text, logprob], place) {
    const probability = Math.exp(logprob);
    const said = `${visibleToken(text)}, ${percent(probability)}`;
    const item = el(
      "span",
      { class: `token shade-${shadeOf(probability)}`, role: "button", "data-place": place, "aria-label": said, title: said },
      text,
    );
    item.tabIndex = place === 0 ? 0 : -1;
    return item;
  }

  /** Tokens behind the end of the text, such as the one that ended the answer, are set apart. */
  _markCut(text) {
    let length = 0;
    const items = [...this.element.children];
    const first = this._tokens.findIndex(([token]) => {
      const fits = text.startsWith(token, length);
      length += fits ? token.length : 0;
      return !fits;
    });
    if (first >= 0 && length === text.length) for (const item of items.slice(first)) item.classList.add("cut");
  }

  _markForced(place) {
    const item = this.element.children[place];
    if (!item || item.classList.contains("forced")) return;
    item.classList.add("forced");
    item.title += ", forced by the constraint";
    item.setAttribute("aria-label", item.title);
  }

  _open(item) {
    this._card.open(item, this._tokens[Number(item.dataset.place)]);
  }
}
