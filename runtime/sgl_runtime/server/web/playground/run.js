// One request: its stream, what it makes of the answers, and how fast.

import { ApiError, post, stream } from "../core/api.js";
import { chatFold, completionFold } from "./folds.js";
import { newAnswer } from "./state.js";

const STOP_WAIT_MS = 1500;

/** A request that runs, or has run. */
export class Run {
  /**
   * @param {{path: string, body: object, isConstrained: boolean}} request
   * @param {(answer: import("./state.js").Answer) => void} onNews Told of each answer that has changed.
   */
  constructor(request, onNews) {
    const { path, body } = request;
    this.answers = Array.from({ length: body.n ?? 1 }, (_, index) => newAnswer(body.rid, index));
    this._request = request;
    this._onNews = onNews;
    this._control = new AbortController();
    this._isStopped = false;
    const isChat = path.includes("chat");
    this._folds = this.answers.map((answer) => (isChat ? chatFold(answer) : completionFold(answer)));
  }

  /** Read the stream to its end; what goes wrong is in the answers then. */
  async finish() {
    const { path, body } = this._request;
    const begin = performance.now();
    try {
      for await (const chunk of stream(path, body, { signal: this._control.signal })) this._take(chunk, begin);
      await this._markForced();
      this._close(this._isStopped ? "abort" : "stop");
    } catch (error) {
      if (this._control.signal.aborted) this._close("abort");
      else this._fail(error instanceof ApiError ? error : new ApiError({ message: String(error), status: 0 }));
    }
  }

  /** End it at the server; what has come so far stays. */
  async stop() {
    this._isStopped = true;
    const cut = setTimeout(() => this._control.abort(), STOP_WAIT_MS);
    try {
      await post("abort_request", { rid: this._request.body.rid });
    } catch {
      // A closed connection ends the request just as well.
      clearTimeout(cut);
      this._control.abort();
    }
  }

  _take(chunk, begin) {
    const now = performance.now();
    for (const choice of chunk.choices ?? []) {
      const answer = this.answers[choice.index];
      const before = answer.numTokens;
      this._folds[choice.index](choice);
      if (answer.firstS === null && answer.numTokens) answer.firstS = (now - begin) / 1000;
      if (answer.numTokens > before) answer.totalS = (now - begin) / 1000 - answer.firstS;
      this._onNews(answer);
    }
    if (chunk.usage) this._note(chunk.usage);
  }

  _note(usage) {
    const shared = { prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
    for (const answer of this.answers) {
      // Tokens that were not listed one by one are known by their number alone, and only where there is one answer.
      if (this.answers.length === 1) answer.numTokens = usage.completion_tokens;
      answer.usage = { ...shared, completion: answer.numTokens };
      this._onNews(answer);
    }
  }

  /** Learn from the server which tokens a constraint left no choice for: their probabilities say nothing. */
  async _markForced() {
    if (!this._request.isConstrained) return;
    const marking = this.answers.filter((answer) => answer.tokens.length).map(async (answer) => {
      const wanted = { rid: answerRid(answer), prompt_begin: answer.usage?.prompt ?? 0, limit: 10_000 };
      const { output } = await post("inspect_request", wanted, { asksForKey: false });
      // Where the model thought first, its answer was a request of its own, the last one.
      const offset = Math.max(0, answer.tokens.length - output.total);
      answer.forced = output.forced.map((place) => place + offset);
    });
    // Where the key does not open the inspector, they stay unmarked.
    await Promise.allSettled(marking);
  }

  _close(reason) {
    for (const answer of this.answers) {
      answer.finish ??= reason;
      this._onNews(answer);
    }
  }

  _fail(error) {
    // Where nothing came of any choice, one card says why.
    if (this.answers.every((answer) => !answer.numTokens)) this.answers.splice(1);
    for (const answer of this.answers) {
      if (answer.finish) continue;
      answer.error = { ...error.toJSON(), title: error.title };
      this._onNews(answer);
    }
  }
}

/** An id by which the server keeps a request for the inspector. */
export function newRid() {
  const words = crypto.getRandomValues(new Uint32Array(4));
  return `web-${[...words].map((word) => word.toString(16).padStart(8, "0")).join("")}`;
}

/** The id of one answer of a request. */
export function answerRid(answer) {
  return answer.index ? `${answer.rid}-${answer.index}` : answer.rid;
}
