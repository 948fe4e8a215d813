// Light, dark, or as the system has it.

import { replace, svg } from "./dom.js";

const ORDER = ["auto", "light", "dark"];
const ICONS = {
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  light: "M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
};

/** Let a button go through the themes. */
export function startTheme(button) {
  const show = () => {
    const theme = current();
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const words = { auto: "as the system", light: "light", dark: "dark" }[theme];
    button.title = `Theme: ${words}`;
    button.setAttribute("aria-label", `Theme: ${words}. Change it.`);
    const path = svg("path", { d: ICONS[theme], fill: theme === "auto" ? "currentColor" : "none", "fill-rule": "evenodd" });
    const icon = svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, path);
    for (const [name, value] of [["stroke", "currentColor"], ["stroke-width", "2"], ["stroke-linecap", "round"]]) {
      path.setAttribute(name, value);
    }
    replace(button, icon);
  };
  button.addEventListener("click", () => {
    localStorage.setItem("sgl.theme", ORDER[(ORDER.indexOf(current()) + 1) % ORDER.length]);
    show();
  });
  show();
}

function current() {
  const theme = localStorage.getItem("sgl.theme");
  return ORDER.includes(theme) ? theme : "auto";
}
