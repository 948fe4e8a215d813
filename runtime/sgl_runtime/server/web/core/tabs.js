// The three views, each with an address of its own: #playground, #live, #inspector/RID.

import { focusItem, makeRoving } from "./roving.js";

const SELECTOR = "[role=tab]";

/**
 * @param {HTMLElement} list
 * @param {(view: string, rest: string) => void} onShow Told of the view that is shown, and of what its address says.
 * @returns {{show: (view: string, rest?: string) => void}}
 */
export function startTabs(list, onShow) {
  const tabs = [...list.querySelectorAll(SELECTOR)];
  const names = tabs.map((tab) => tab.dataset.view);

  let followed = null;
  const follow = () => {
    if (location.hash === followed) return;
    followed = location.hash;
    const [name, ...rest] = decodeURIComponent(location.hash.slice(1)).split("/");
    const view = names.includes(name) ? name : names[0];
    for (const tab of tabs) {
      const isShown = tab.dataset.view === view;
      tab.setAttribute("aria-selected", String(isShown));
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !isShown;
      if (isShown) focusItem(list, SELECTOR, tab, { moveFocus: false });
      else tab.tabIndex = -1;
    }
    document.title = `${tabs[names.indexOf(view)].textContent} · sgl`;
    onShow(view, rest.join("/"));
  };
  const show = (view, rest = "") => {
    location.hash = rest ? `${view}/${encodeURIComponent(rest)}` : view;
    // The browser tells of the change later, and by then it is known.
    follow();
  };
  for (const tab of tabs) tab.addEventListener("click", () => show(tab.dataset.view));
  makeRoving(list, SELECTOR, { onMove: (tab) => show(tab.dataset.view), onPick: (tab) => show(tab.dataset.view) });
  window.addEventListener("hashchange", follow);
  follow();
  return { show };
}
