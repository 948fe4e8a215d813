// Dialogs: the browser keeps the focus inside, closes them with Escape and gives the focus back.

import { el, freshId } from "./dom.js";

/**
 * Show a dialog with a title, and take it away when it is closed.
 * @param {string} title
 * @param {...(Node | string | null)} children
 * @returns {HTMLDialogElement}
 */
export function openDialog(title, ...children) {
  const id = freshId("dialog");
  const close = el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close");
  const sheet = el("div", { class: "sheet" }, el("header", {}, el("h2", { id }, title), close), ...children);
  const dialog = el("dialog", { "aria-labelledby": id }, sheet);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
