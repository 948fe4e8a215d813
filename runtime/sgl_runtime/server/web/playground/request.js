// From the state of the playground to the body of a request.

import { chosenAnswer, messageText } from "./state.js";

const NUMBERS = [
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "max_tokens",
  "seed",
  "frequency_penalty",
  "presence_penalty",
  "repetition_penalty",
  "n",
];

/** Where a setting of the page is wrong before anything is sent. */
export class SettingError extends Error {
  /** @param {string} field @param {string} message */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/**
 * The path and the body of a request, and whether a constraint shapes its answer.
 * @param {object} state
 * @param {{model: string, rid?: string, messages?: object[], forPrograms?: boolean}} options
 *   With `forPrograms` without what only this page needs.
 */
export function requestOf(state, { model, rid, messages, forPrograms = false }) {
  const isChat = state.mode === "chat";
  const prompt = isChat ? { messages: wireMessages(state, messages ?? state.messages) } : { prompt: state.prompt };
  const body = { model, ...prompt, ...samplingOf(state), ...constraintOf(state) };
  if (isChat) Object.assign(body, toolsOf(state));
  if (!forPrograms) {
    Object.assign(body, probabilitiesOf(state, isChat), { stream: true, stream_options: { include_usage: true }, rid });
  }
  const isConstrained = nativeConstraint(state) !== null;
  return { path: isChat ? "v1/chat/completions" : "v1/completions", body, isConstrained };
}

/** The messages as the API takes them. */
export function wireMessages(state, messages) {
  const system = state.system.trim() ? [{ role: "system", content: state.system }] : [];
  return [...system, ...messages.filter((message) => !cameToNothing(message)).map(wireMessage)];
}

/** Whether a message is an answer that failed before there was any of it: the model never said it. */
function cameToNothing(message) {
  const answer = chosenAnswer(message);
  return message.role === "assistant" && Boolean(answer?.error) && !answer.text && !answer.calls.length;
}

function wireMessage(message) {
  const wire = { role: message.role, content: messageText(message) };
  if (message.role === "tool") wire.tool_call_id = message.tool_call_id ?? "";
  const calls = message.role === "assistant" ? chosenAnswer(message)?.calls ?? [] : [];
  if (calls.length) {
    wire.tool_calls = calls.map(({ id, name, arguments: text }) => ({
      id,
      type: "function",
      function: { name, arguments: text },
    }));
  }
  return wire;
}

/** The settings that are filled in, as numbers. */
export function samplingOf(state) {
  const fields = {};
  for (const name of NUMBERS) {
    const text = String(state.sampling[name]).trim();
    if (text === "") continue;
    const value = Number(text);
    if (!Number.isFinite(value)) throw new SettingError(name, `“${text}” is no number.`);
    if (name !== "n" || value !== 1) fields[name] = value;
  }
  const stop = state.sampling.stop.split("\n").filter((line) => line !== "").map(unescaped);
  if (stop.length) fields.stop = stop;
  return fields;
}

/** A line of the stop field: \n and \t stand for what they usually do. */
function unescaped(line) {
  return line.replace(/\\([nt\\])/g, (_, char) => ({ n: "\n", t: "\t", "\\": "\\" })[char]);
}

/** The constraint in the form of the native API; null for none. */
export function nativeConstraint(state) {
  const { kind, texts, lenient } = state.constraint;
  const text = kind === "none" ? "" : texts[kind];
  if (text.trim() === "") return null;
  if (kind === "choices") return { choices: text.split("\n").filter((line) => line !== "") };
  if (kind !== "json_schema") return { [kind]: text };
  return lenient ? { json_schema: text, json_schema_lenient: true } : { json_schema: text };
}

function constraintOf(state) {
  const found = nativeConstraint(state);
  if (found === null || !("json_schema" in found)) return found ?? {};
  let schema;
  try {
    schema = JSON.parse(found.json_schema);
  } catch (error) {
    throw new SettingError("json_schema", `The schema is no JSON: ${error.message}`);
  }
  const format = { type: "json_schema", json_schema: { name: "answer", schema } };
  return found.json_schema_lenient ? { response_format: format, json_schema_lenient: true } : { response_format: format };
}

function toolsOf(state) {
  if (state.tools.text.trim() === "") return {};
  let tools;
  try {
    tools = JSON.parse(state.tools.text);
  } catch (error) {
    throw new SettingError("tools", `The tools are no JSON: ${error.message}`);
  }
  return { tools, tool_choice: state.tools.choice };
}

function probabilitiesOf(state, isChat) {
  const { on, top } = state.probabilities;
  if (!on) return {};
  return isChat ? { logprobs: true, top_logprobs: top } : { logprobs: top };
}
