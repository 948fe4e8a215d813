// Asks for the key of a server that wants one; it is kept until the tab is closed.

import { apiKey, keyEvents, setApiKey } from "./api.js";
import { openDialog } from "./dialogs.js";
import { el } from "./dom.js";

/** Ask when the server refuses, and whenever the button is pressed. */
export function startKeyDialog(button) {
  let open = null;
  const ask = (reason) => {
    if (open?.isConnected) return;
    const input = el("input", { type: "password", id: "api-key", autocomplete: "off", spellcheck: "false", value: apiKey() });
    const form = el(
      "form",
      { method: "dialog", onsubmit: () => setApiKey(input.value.trim()) },
      el(
        "div",
        { class: "field" },
        el("label", { for: "api-key" }, "API key, or the admin key"),
        input,
        el("p", { class: "hint" }, "Kept in this tab until it is closed, and sent to this server alone."),
      ),
      el("menu", {}, el("button", { class: "button main", type: "submit" }, "Use this key")),
    );
    form.className = "key-form";
    open = openDialog("Key", reason ? el("p", {}, reason) : null, form);
    input.focus();
  };
  keyEvents.addEventListener("wanted", (event) => {
    button.hidden = false;
    ask(event.detail);
  });
  keyEvents.addEventListener("set", () => {
    button.hidden = !apiKey();
  });
  button.hidden = !apiKey();
  button.addEventListener("click", () => ask(""));
}
