// A small chart of the last five minutes: lines over time, a cursor by pointer or arrow keys, and words for the ear.

import { el, replace, svg } from "../core/dom.js";

const WIDTH_S = 300;
const MARGIN = { left: 54, right: 10, top: 8, bottom: 20 };
const HEIGHT = 132;
const GAP_S = 5;

/** One chart. */
export class Chart {
  /**
   * @param {string} title
   * @param {{name: string, figure: Function}[]} lines At most two.
   * @param {{format: (value: number) => string, least?: number, hint?: string}} options `least` is the smallest top.
   */
  constructor(title, lines, { format, least = 0, hint = "" }) {
    this._title = title;
    this._lines = lines;
    this._format = format;
    this._least = least;
    this._cursor = null;
    this._points = lines.map(() => []);
    this._values = lines.map(() => el("strong", {}));
    const legend = lines.map(({ name }, place) =>
      el("span", { class: `legend series-${place}` }, el("i", { "aria-hidden": "true" }), `${name} `, this._values[place]),
    );
    this._when = el("span", { class: "when" });
    this._drawing = svg("svg", { class: "drawing", role: "img", tabindex: "0" });
    this.element = el(
      "figure",
      { class: "chart card" },
      el("figcaption", {}, el("h3", { title: hint }, title), el("div", { class: "legends" }, ...legend, this._when)),
      this._drawing,
    );
    this._drawing.addEventListener("pointermove", (event) => this._point(event));
    this._drawing.addEventListener("pointerleave", () => this._setCursor(null));
    this._drawing.addEventListener("blur", () => this._setCursor(null));
    this._drawing.addEventListener("keydown", (event) => this._step(event));
    new ResizeObserver(() => this._draw()).observe(this._drawing);
  }

  /** @param {import("./series.js").Series} series */
  update(series) {
    this._points = this._lines.map(({ figure }) => series.points(figure));
    this._draw();
  }

  _draw() {
    const width = this._drawing.clientWidth;
    if (!width) return;
    const known = this._points.flat().map(([, value]) => value).filter((value) => value !== null);
    const top = niceTop(Math.max(this._least, ...known));
    const x = (at) => MARGIN.left + (1 + at / WIDTH_S) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => HEIGHT - MARGIN.bottom - (value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    this._drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this._drawing.setAttribute("aria-label", this._words(known));
    replace(
      this._drawing,
      ...[0, 0.5, 1].flatMap((share) => [
        svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(share * top), y2: y(share * top) }),
        svg("text", { class: "tick", x: MARGIN.left - 7, y: y(share * top) + 4, "text-anchor": "end" }, this._format(share * top)),
      ]),
      svg("text", { class: "tick", x: MARGIN.left, y: HEIGHT - 5 }, "5 min ago"),
      svg("text", { class: "tick", x: width - MARGIN.right, y: HEIGHT - 5, "text-anchor": "end" }, "now"),
      ...this._points.flatMap((points, place) => paths(points, place, x, y)),
      ...this._cursorMarks(x, y),
    );
    this._showValues();
  }

  _cursorMarks(x, y) {
    const at = this._cursorAt();
    if (at === null) return [];
    const line = svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    const dots = this._points.map((points, place) => {
      const value = points[this._cursor]?.[1] ?? null;
      return value === null ? null : svg("circle", { class: `dot series-${place}`, cx: x(at), cy: y(value), r: 3.5 });
    });
    return [line, ...dots];
  }

  _cursorAt() {
    return this._cursor === null ? null : this._points[0][this._cursor]?.[0] ?? null;
  }

  _showValues() {
    const at = this._cursorAt();
    this._points.forEach((points, place) => {
      const value = (at === null ? points.at(-1) : points[this._cursor])?.[1] ?? null;
      this._values[place].textContent = value === null ? "–" : this._format(value);
    });
    this._when.textContent = at === null ? "" : `${Math.round(-at)} s ago`;
  }

  _words(known) {
    if (!known.length) return `${this._title}: nothing yet`;
    const parts = this._lines.map(({ name }, place) => {
      const value = this._points[place].at(-1)?.[1] ?? null;
      return `${name} ${value === null ? "none" : this._format(value)}`;
    });
    return `${this._title}, last five minutes. Now: ${parts.join(", ")}. Highest: ${this._format(Math.max(...known))}`;
  }

  _point(event) {
    const box = this._drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right) - 1) * WIDTH_S;
    const points = this._points[0];
    let best = null;
    points.forEach(([time], place) => {
      if (best === null || Math.abs(time - at) < Math.abs(points[best][0] - at)) best = place;
    });
    this._setCursor(best);
  }

  _step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    if (!by) return;
    event.preventDefault();
    const last = this._points[0].length - 1;
    this._setCursor(Math.max(0, Math.min(last, (this._cursor ?? last) + by)));
  }

  _setCursor(place) {
    this._cursor = place;
    this._draw();
  }
}

/** A line for each run of known values, with a filled area under the first series. */
function paths(points, place, x, y) {
  const runs = [];
  let run = [];
  let last = null;
  for (const [at, value] of points) {
    if (value === null) continue;
    // Where nothing came for some seconds, the line breaks.
    if (last !== null && at - last > GAP_S) {
      runs.push(run);
      run = [];
    }
    run.push([x(at), y(value)]);
    last = at;
  }
  runs.push(run);
  return runs.filter((each) => each.length).flatMap((each) => {
    const line = `M${each.map(([left, top]) => `${left.toFixed(1)} ${top.toFixed(1)}`).join("L")}`;
    const area = `${line}L${each.at(-1)[0].toFixed(1)} ${y(0)}L${each[0][0].toFixed(1)} ${y(0)}Z`;
    const shown = svg("path", { class: `line series-${place}`, d: each.length > 1 ? line : `${line}h.1` });
    return place === 0 ? [svg("path", { class: "area", d: area }), shown] : [shown];
  });
}

/** The next number above that is 1, 2, 4 or 6 times a power of ten: its half is short, too. */
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 10].find((step) => step * power >= value * 0.999) * power;
}
