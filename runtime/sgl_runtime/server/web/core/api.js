// Calls to this server, with the key where it wants one; what goes wrong is an ApiError.

import { readEvents } from "./sse.js";
import { keep, kept } from "./storage.js";

const KEY = "sgl.key";
// Where a proxy puts the server below a path, the page lies there too.
const BASE = new URL(".", document.baseURI);

/** An error of the server, or of the way to it. */
export class ApiError extends Error {
  /** @param {{message: string, status: number, code?: string, param?: string | null, requestId?: string | null}} told */
  constructor(told) {
    super(told.message);
    this.status = told.status;
    this.code = told.code ?? "";
    this.param = told.param ?? null;
    this.requestId = told.requestId ?? null;
  }

  /** What kept a request from its answer, for people. */
  get title() {
    if (this.status === 0) return "The server does not answer";
    if (this.status === 401) return "The server asks for a key";
    if (this.status === 503) return "The server is busy";
    if (this.status >= 500) return "The server failed";
    return "The server refused the request";
  }

  /** What can be kept of it. */
  toJSON() {
    const { message, status, code, param, requestId } = this;
    return { message, status, code, param, requestId };
  }
}

/** Tells of keys: "wanted" when the server refused one, "set" when there is a new one. */
export const keyEvents = new EventTarget();

let currentKey = kept("sessionStorage", KEY) ?? "";

export function apiKey() {
  return currentKey;
}

export function setApiKey(key) {
  currentKey = key;
  keep("sessionStorage", KEY, key || null);
  keyEvents.dispatchEvent(new Event("set"));
}

/** The address of the server, as programs use it. */
export function serverUrl() {
  return BASE.href.replace(/\/$/, "");
}

/** The JSON reply of a GET. */
export async function get(path, { signal } = {}) {
  return (await request(path, { method: "GET", signal })).json();
}

/** The JSON reply of a POST; with `asksForKey` false a refused key is an error like others. */
export async function post(path, body, { signal, asksForKey = true } = {}) {
  return (await request(path, { method: "POST", body, signal, asksForKey })).json();
}

/** The objects of a stream, as they come; an error inside it is thrown. */
export async function* stream(path, body, { signal } = {}) {
  const response = await request(path, { method: "POST", body, signal });
  const requestId = response.headers.get("x-request-id");
  try {
    for await (const event of readEvents(response.body)) {
      if (event.error) throw asError(response.status, event, requestId);
      yield event;
    }
  } catch (error) {
    throw error instanceof ApiError || signal?.aborted ? error : lost(error);
  }
}

async function request(path, { method, body, signal, asksForKey = true }) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (apiKey()) headers.authorization = `Bearer ${apiKey()}`;
  let response;
  try {
    response = await fetch(new URL(path, BASE), { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    throw signal?.aborted ? error : lost(error);
  }
  if (response.ok) return response;
  let content = {};
  try {
    content = await response.json();
  } catch {
    // Not from this server, but from something in front of it.
  }
  const error = asError(response.status, content, response.headers.get("x-request-id"));
  if (response.status === 401 && asksForKey) keyEvents.dispatchEvent(new CustomEvent("wanted", { detail: error.message }));
  throw error;
}

function asError(status, content, requestId) {
  const told = content.error ?? {};
  const message = told.message ?? `The answer has status ${status} and says nothing more.`;
  const shown = status === 200 ? { invalid_request_error: 400 }[told.type] ?? 500 : status;
  return new ApiError({ message, status: shown, code: told.code, param: told.param, requestId });
}

function lost(cause) {
  return new ApiError({ message: `The connection to ${serverUrl()} broke: ${cause.message}`, status: 0 });
}
