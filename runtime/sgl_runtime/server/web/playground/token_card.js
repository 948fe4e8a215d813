// The card at a token: its probability, and the likeliest tokens of its place with bars.

import { el, replace } from "../core/dom.js";
import { percent, visibleToken } from "../core/format.js";
import { announce } from "../core/notices.js";

/** One card, which is where it is needed. */
export class TokenCard {
  constructor() {
    this.element = el("div", { class: "token-card card" });
    this._item = null;
    this._onScroll = () => this._place(this._item);
  }

  get isOpen() {
    return this._item !== null;
  }

  /**
   * Show the card at a token.
   * @param {HTMLElement} item
   * @param {[string, number, [string, number][]]} token
   */
  open(item, [text, logprob, others]) {
    this._item?.classList.remove("picked");
    this._item = item;
    item.classList.add("picked");
    const rows = others.some(([other]) => other === text) ? others : [[text, logprob], ...others];
    replace(
      this.element,
      el("p", { class: "label" }, "Came with ", el("strong", {}, percent(Math.exp(logprob)))),
      others.length
        ? el("ol", { class: "bars" }, ...rows.map((row) => barRow(row, row[0] === text)))
        : el("p", { class: "hint" }, "No others were asked for: see Token probabilities in the settings."),
    );
    document.body.append(this.element);
    this._place(item);
    window.addEventListener("scroll", this._onScroll, { capture: true });
    const listed = rows.map(([other, value]) => `${visibleToken(other)} ${percent(Math.exp(value))}`).join(", ");
    announce(`${visibleToken(text)} came with ${percent(Math.exp(logprob))}. Likeliest: ${listed}`);
  }

  close() {
    this._item?.classList.remove("picked");
    this._item = null;
    this.element.remove();
    window.removeEventListener("scroll", this._onScroll, { capture: true });
  }

  _place(item) {
    const at = item.getClientRects()[0] ?? item.getBoundingClientRect();
    const { width, height } = this.element.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, window.innerWidth - width - 8));
    const isBelow = at.bottom + height + 12 < window.innerHeight;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${isBelow ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
  }
}

function barRow([text, logprob], isChosen) {
  const share = Math.exp(logprob);
  const bar = el("span", { class: "bar" });
  bar.style.width = `${Math.max(share * 100, 0.5)}%`;
  return el(
    "li",
    { class: isChosen ? "chosen" : null },
    el("code", {}, visibleToken(text)),
    el("span", { class: "track" }, bar),
    el("span", { class: "share" }, percent(share)),
  );
}
