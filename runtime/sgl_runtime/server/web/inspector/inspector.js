// The request inspector: the latest requests beside one of them.

import { keyEvents, post } from "../core/api.js";
import { el, replace } from "../core/dom.js";
import { clock, compact, duration } from "../core/format.js";
import { problemCard } from "../core/problem.js";
import { focusItem, makeRoving } from "../core/roving.js";
import { Detail } from "./detail.js";
import { stateChip } from "./states.js";

const SELECTOR = ".entry";
const EVERY_MS = 2000;

/** Builds the view. */
export class Inspector {
  /**
   * @param {HTMLElement} root
   * @param {{choose: (which: string) => void}} actions `choose` changes the address, which then calls `show`.
   */
  constructor(root, { choose }) {
    this._root = root;
    this._choose = choose;
    this._chosen = "";
    this._timer = null;
    this._shown = "";
    this._about = el("p", { class: "hint" });
    this._list = el("ul", { class: "entries", "aria-label": "Latest requests" });
    this._detail = new Detail({ back: () => choose("") });
    this._box = el(
      "div",
      { class: "inspector" },
      el("div", { class: "list-side" }, el("h2", {}, "Requests"), this._about, this._list),
      this._detail.element,
    );
    makeRoving(this._list, SELECTOR, { onPick: (item) => choose(item.dataset.which) });
    this._list.addEventListener("click", (event) => {
      const item = event.target.closest(SELECTOR);
      if (item) choose(item.dataset.which);
    });
    document.addEventListener("visibilitychange", () => this._poll());
    keyEvents.addEventListener("set", () => this._poll());
    replace(root, this._box);
  }

  /**
   * The view has come into sight.
   * @param {string} which A rid, a number after `#`, or nothing.
   */
  show(which) {
    const isNew = which !== this._chosen || !which;
    this._chosen = which;
    this._box.classList.toggle("has-choice", Boolean(which));
    if (!which) this._detail.clear();
    else if (isNew) this._detail.show(which.startsWith("#") ? { key: Number(which.slice(1)) } : { rid: which });
    this._mark();
    this._poll();
  }

  async _poll() {
    clearTimeout(this._timer);
    if (this._root.hidden || document.hidden) return;
    try {
      this._render(await post("request_history", { limit: 200 }));
    } catch (error) {
      replace(this._about, problemCard(error));
      if (error.status === 401) return;
    }
    this._timer = setTimeout(() => this._poll(), EVERY_MS);
  }

  _render({ capacity, running, ended }) {
    const entries = [...running, ...ended];
    this._about.textContent = capacity
      ? `The latest ${capacity} requests, and those of this page.`
      : "Only requests of this page are kept. Start the server with --request-history N to keep the latest N of all clients.";
    const text = JSON.stringify(entries.map((entry) => (entry.state === "running" ? entry : [entry.key, entry.state])));
    if (text === this._shown) return;
    this._shown = text;
    const focused = document.activeElement?.closest?.(SELECTOR)?.dataset.which;
    replace(this._list, ...entries.map((entry) => this._entry(entry)));
    if (!entries.length) replace(this._list, el("li", { class: "empty" }, "No request yet."));
    this._mark();
    const again = focused && [...this._list.querySelectorAll(SELECTOR)].find((item) => item.dataset.which === focused);
    if (again) focusItem(this._list, SELECTOR, again);
  }

  _entry(entry) {
    const button = el(
      "button",
      { type: "button", class: "entry", "data-which": `#${entry.key}`, "data-rid": entry.rid },
      el("span", { class: "entry-head" }, el("span", { class: "mono" }, clock(entry.time)), stateChip(entry.state)),
      el("span", { class: "entry-path mono" }, entry.path ?? "in-process call"),
      el(
        "span",
        { class: "hint" },
        `${compact(entry.prompt_tokens)} → ${compact(entry.completion_tokens)} tokens · ${duration(entry.seconds)}${entry.constraint ? ` · ${entry.constraint}` : ""}`,
      ),
    );
    button.tabIndex = -1;
    return el("li", {}, button);
  }

  /** Show which one is chosen; the Tab key stops there, or at the first. */
  _mark() {
    const items = [...this._list.querySelectorAll(SELECTOR)];
    for (const item of items) {
      const isChosen = this._chosen !== "" && [item.dataset.which, item.dataset.rid].includes(this._chosen);
      item.toggleAttribute("aria-current", isChosen);
    }
    const stop = items.find((item) => item.hasAttribute("aria-current")) ?? items[0];
    if (stop) focusItem(this._list, SELECTOR, stop, { moveFocus: false });
  }
}
