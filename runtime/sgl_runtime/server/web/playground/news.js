// Gathers what changes fast, and tells it a few dozen times a second.

const PAUSE_MS = 30;

/** Tells of each thing that has changed once, however often it did. */
export class News {
  /** @param {(thing: object) => void} tell */
  constructor(tell) {
    this._tell = tell;
    this._changed = new Set();
    this._timer = null;
  }

  add(thing) {
    this._changed.add(thing);
    this._timer ??= setTimeout(() => this.flush(), PAUSE_MS);
  }

  /** Tell now what is left. */
  flush() {
    clearTimeout(this._timer);
    this._timer = null;
    const changed = [...this._changed];
    this._changed.clear();
    for (const thing of changed) this._tell(thing);
  }
}
