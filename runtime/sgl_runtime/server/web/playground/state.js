// What the playground holds, kept over reloads, and as a file.

import { notice } from "../core/notices.js";
import { keep, kept } from "../core/storage.js";

const PLACE = "sgl.playground";
const VERSION = 1;
const SAVE_DELAY_MS = 400;

/**
 * @typedef {object} Answer
 * @property {string} rid
 * @property {number} index Which of several choices it is.
 * @property {string} text
 * @property {string} reasoning
 * @property {{id: string, name: string, arguments: string}[]} calls
 * @property {[string, number, [string, number][]][]} tokens Text, log probability, and what else could have come.
 * @property {number[]} forced Which tokens a constraint left no choice for.
 * @property {string | null} finish
 * @property {object | null} error
 * @property {{prompt: number, cached: number, completion: number} | null} usage
 * @property {number | null} firstS Seconds to the first token.
 * @property {number} totalS Seconds from the first token on.
 * @property {number} numTokens
 */

/**
 * @typedef {object} Run
 * @property {Answer[]} answers
 * @property {number} chosen
 */

/** A conversation with nothing in it, and settings as they are by default. */
export function emptyState() {
  return {
    version: VERSION,
    mode: "chat",
    system: "",
    messages: [],
    prompt: "",
    completion: { runs: [], run: 0 },
    draft: "",
    sampling: {
      temperature: "",
      top_p: "",
      top_k: "",
      min_p: "",
      max_tokens: "256",
      seed: "",
      frequency_penalty: "",
      presence_penalty: "",
      repetition_penalty: "",
      stop: "",
      n: "1",
    },
    constraint: { kind: "none", texts: { json_schema: "", regex: "", choices: "", ebnf: "" }, lenient: false },
    tools: { text: "", choice: "auto" },
    probabilities: { on: true, top: 5 },
  };
}

/** A message; an assistant's one has runs, each with the answers of one request. */
export function newMessage(role, content = "") {
  return { id: crypto.randomUUID?.() ?? String(Math.random()).slice(2), role, content, runs: [], run: 0 };
}

/** The answer of a message or a completion that counts; null where there is none. */
export function chosenAnswer(holder) {
  const run = holder.runs[holder.run];
  return run?.answers[run.chosen] ?? null;
}

/** The text of a message as the model gets it. */
export function messageText(message) {
  return chosenAnswer(message)?.text ?? message.content;
}

/** Keeps the state; changes are made in place and told by `changed`. */
export class Store {
  constructor() {
    this.state = read(kept("localStorage", PLACE)) ?? emptyState();
    this._timer = null;
    this._hasWarned = false;
    window.addEventListener("pagehide", () => this._save());
  }

  /** Write it down soon. */
  changed() {
    this._timer ??= setTimeout(() => this._save(), SAVE_DELAY_MS);
  }

  /** Take another state in the place of this one. */
  put(state) {
    this.state = state;
    this.changed();
  }

  _save() {
    clearTimeout(this._timer);
    this._timer = null;
    if (keep("localStorage", PLACE, JSON.stringify(this.state))) return;
    // Too much for the browser: the probabilities of tokens take the most.
    if (keep("localStorage", PLACE, JSON.stringify(withoutTokens(this.state))) || this._hasWarned) return;
    this._hasWarned = true;
    notice("The browser does not keep this conversation. Export it as a file.");
  }
}

/**
 * The state that a text holds.
 * @returns {object | null} null where it holds none.
 */
export function read(text) {
  if (!text) return null;
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    return null;
  }
  if (given?.version !== VERSION || !Array.isArray(given.messages)) return null;
  return checked(given);
}

/** Of what was read only what has the right shape, so that a strange file cannot break the page. */
function checked(given) {
  const state = merged(emptyState(), given);
  state.messages = given.messages.filter((message) => message && typeof message === "object").map(checkedMessage);
  state.completion = checkedHolder(given.completion);
  if (!["chat", "completion"].includes(state.mode)) state.mode = "chat";
  return state;
}

function merged(shape, given) {
  const result = {};
  for (const [name, fallback] of Object.entries(shape)) {
    const value = given?.[name];
    if (fallback !== null && typeof fallback === "object" && !Array.isArray(fallback)) result[name] = merged(fallback, value);
    else result[name] = typeof value === typeof fallback && Array.isArray(value) === Array.isArray(fallback) ? value : fallback;
  }
  return result;
}

function checkedMessage(message) {
  const fresh = newMessage(String(message.role ?? "user"), String(message.content ?? ""));
  const kept = typeof message.tool_call_id === "string" ? { tool_call_id: message.tool_call_id } : {};
  return { ...fresh, ...kept, ...checkedHolder(message) };
}

function checkedHolder(holder) {
  const runs = Array.isArray(holder?.runs) ? holder.runs.map(checkedRun).filter((run) => run.answers.length) : [];
  return { runs, run: clamp(holder?.run, runs.length) };
}

function checkedRun(run) {
  const answers = Array.isArray(run?.answers) ? run.answers.map(checkedAnswer) : [];
  return { answers, chosen: clamp(run?.chosen, answers.length) };
}

function checkedAnswer(answer, index) {
  const fresh = newAnswer(String(answer?.rid ?? ""), index);
  const result = merged(fresh, answer);
  for (const name of ["finish", "error", "usage", "firstS"]) result[name] = answer?.[name] ?? null;
  result.calls = result.calls.filter((call) => typeof call?.name === "string");
  result.tokens = result.tokens.filter((token) => Array.isArray(token) && typeof token[0] === "string");
  // What was being written when the page was left is not being written any more.
  if (!result.finish && !result.error) result.finish = "left";
  return result;
}

function clamp(value, length) {
  return Number.isInteger(value) ? Math.max(0, Math.min(value, length - 1)) : Math.max(0, length - 1);
}

/** @returns {Answer} */
export function newAnswer(rid, index) {
  return {
    rid,
    index,
    text: "",
    reasoning: "",
    calls: [],
    tokens: [],
    forced: [],
    finish: null,
    error: null,
    usage: null,
    firstS: null,
    totalS: 0,
    numTokens: 0,
  };
}

function withoutTokens(state) {
  return JSON.parse(JSON.stringify(state, (name, value) => (name === "tokens" ? [] : value)));
}
