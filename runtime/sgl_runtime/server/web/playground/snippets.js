// The request as a program: curl, Python with OpenAI's client, a program in sgl.

import { apiKey, serverUrl } from "../core/api.js";
import { openDialog } from "../core/dialogs.js";
import { el } from "../core/dom.js";
import { copyText } from "../core/notices.js";
import { messageText } from "./state.js";
import { nativeConstraint, requestOf, samplingOf } from "./request.js";

// What OpenAI's client has arguments for; all else goes into extra_body.
const KNOWN = new Set([
  "model",
  "messages",
  "prompt",
  "temperature",
  "top_p",
  "max_tokens",
  "seed",
  "frequency_penalty",
  "presence_penalty",
  "n",
  "stop",
  "tools",
  "tool_choice",
  "response_format",
]);

/** Show the request of a state in three languages. */
export function showSnippets(state, model) {
  const texts = { curl: curl(state, model), "Python (openai)": openai(state, model), "sgl program": program(state) };
  const code = el("pre", { tabindex: "0", "aria-label": "Program" });
  const show = (name) => (code.textContent = texts[name]);
  const radios = Object.keys(texts).map((name, place) =>
    el(
      "label",
      {},
      el("input", { type: "radio", name: "snippet", checked: place === 0, onchange: () => show(name) }),
      el("span", {}, name),
    ),
  );
  show("curl");
  openDialog(
    "This request as a program",
    el("div", { class: "segments", role: "radiogroup", "aria-label": "Language" }, ...radios),
    code,
    el(
      "menu",
      {},
      el("button", { type: "button", class: "button main", onclick: () => copyText(code.textContent, "Program") }, "Copy"),
    ),
  );
}

export function curl(state, model) {
  const { path, body } = requestOf(state, { model, forPrograms: true });
  const key = apiKey() ? ' \\\n  -H "Authorization: Bearer $SGL_API_KEY"' : "";
  const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl ${serverUrl()}/${path} \\\n  -H "Content-Type: application/json"${key} \\\n  -d '${json}'\n`;
}

export function openai(state, model) {
  const { body } = requestOf(state, { model, forPrograms: true });
  const known = Object.entries(body).filter(([name]) => KNOWN.has(name));
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !KNOWN.has(name)));
  const fields = known.map(([name, value]) => `    ${name}=${python(value, 1)},`);
  if (Object.keys(extra).length) fields.push(`    extra_body=${python(extra, 1)},`);
  const isChat = state.mode === "chat";
  const call = isChat ? "chat.completions" : "completions";
  const text = isChat ? "choice.message.content" : "choice.text";
  const key = apiKey() ? 'os.environ["SGL_API_KEY"]' : '"none"';
  return [
    ...(apiKey() ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${serverUrl()}/v1", api_key=${key})`,
    `reply = client.${call}.create(`,
    ...fields,
    ")",
    "for choice in reply.choices:",
    `    print(${text})`,
    "",
  ].join("\n");
}

export function program(state) {
  const { n, ...sampling } = samplingOf(state);
  const constraint = nativeConstraint(state) ?? {};
  const settings = { ...sampling, ...constraint };
  const given = Object.entries(settings).map(([name, value]) => `, ${name}=${python(value, 2)}`);
  const gen = `sgl.gen("answer"${given.join("")})`;
  const lines =
    state.mode === "chat"
      ? [...chatLines(state), `    s += sgl.assistant(${gen})`]
      : [`    s += ${python(state.prompt)}`, `    s += ${gen}`];
  const key = apiKey() ? ', api_key=os.environ["SGL_API_KEY"]' : "";
  const runs = n ? `for state in answer.run_batch([{}] * ${n}):\n    print(state["answer"])` : 'print(answer.run()["answer"])';
  return [
    ...(apiKey() ? ["import os", ""] : []),
    "import sgl",
    "",
    "",
    "@sgl.function",
    "def answer(s):",
    ...lines,
    "",
    "",
    `sgl.set_default_backend(sgl.RuntimeEndpoint("${serverUrl()}"${key}))`,
    runs,
    "",
  ].join("\n");
}

function chatLines(state) {
  const system = state.system.trim() ? [`    s += sgl.system(${python(state.system)})`] : [];
  const known = state.messages.filter(({ role }) => ["system", "user", "assistant"].includes(role));
  return [...system, ...known.map((message) => `    s += sgl.${message.role}(${python(messageText(message))})`)];
}

/** A value as Python writes it. */
export function python(value, depth = 0) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return JSON.stringify(value).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
  if (typeof value !== "object") return String(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((item) => python(item, depth + 1))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${python(item, depth + 1)}`);
  const [open, close] = isList ? "[]" : "{}";
  const line = `${open}${parts.join(", ")}${close}`;
  if (line.length < 80 && !line.includes("\n")) return line;
  const pad = "    ".repeat(depth + 1);
  return `${open}\n${parts.map((part) => `${pad}${part},\n`).join("")}${"    ".repeat(depth)}${close}`;
}
