// One stop of the Tab key for many things; arrow keys go from one to the next.

/**
 * @param {HTMLElement} container
 * @param {string} selector What is gone through.
 * @param {{onMove?: (item: HTMLElement) => void, onPick?: (item: HTMLElement) => void}} [told]
 */
export function makeRoving(container, selector, { onMove, onPick } = {}) {
  container.addEventListener("keydown", (event) => {
    const item = event.target instanceof Element ? event.target.closest(selector) : null;
    if (!item || event.ctrlKey || event.altKey || event.metaKey) return;
    const items = [...container.querySelectorAll(selector)];
    const next = nextPlace(event.key, items.indexOf(item), items.length);
    if (next !== null) {
      event.preventDefault();
      focusItem(container, selector, items[next]);
      onMove?.(items[next]);
    } else if (onPick && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      onPick(item);
    }
  });
}

/** Make one item the stop of the Tab key, and go there. */
export function focusItem(container, selector, item, { moveFocus = true } = {}) {
  for (const other of container.querySelectorAll(`${selector}[tabindex="0"]`)) other.tabIndex = -1;
  item.tabIndex = 0;
  if (moveFocus) item.focus();
}

function nextPlace(key, place, length) {
  switch (key) {
    case "ArrowRight":
    case "ArrowDown":
      return Math.min(place + 1, length - 1);
    case "ArrowLeft":
    case "ArrowUp":
      return Math.max(place - 1, 0);
    case "Home":
      return 0;
    case "End":
      return length - 1;
    default:
      return null;
  }
}
