// Light, dark, or as the system has it.

import { replace, svg } from "./dom.js";
import { keep, kept } from "./storage.js";

const PLACE = "sgl.theme";
const ORDER = ["auto", "light", "dark"];
const ICONS = {
  auto: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 3v18M16.5 4.5v15M14.2 3.5v17M18.8 6.2v11.6",
  light: "M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
};

/** Let a button go through the themes. */
export function startTheme(button) {
  let theme = kept("localStorage", PLACE);
  if (!ORDER.includes(theme)) theme = "auto";
  const show = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const words = { auto: "as the system", light: "light", dark: "dark" }[theme];
    button.title = `Theme: ${words}`;
    button.setAttribute("aria-label", `Theme: ${words}. Change it.`);
    const line = { fill: "none", stroke: "currentColor", "stroke-width": "2", "stroke-linecap": "round" };
    replace(button, svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: ICONS[theme], ...line })));
  };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    keep("localStorage", PLACE, theme);
    show();
  });
  show();
}
