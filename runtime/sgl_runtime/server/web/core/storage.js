// What the browser keeps for this page; where it keeps nothing, the page works all the same.

/** @param {"localStorage" | "sessionStorage"} area @param {string} name */
export function kept(area, name) {
  try {
    return window[area].getItem(name);
  } catch {
    return null;
  }
}

/**
 * Keep a text; null to keep none.
 * @returns {boolean} Whether the browser has taken it.
 */
export function keep(area, name, text) {
  try {
    if (text === null) window[area].removeItem(name);
    else window[area].setItem(name, text);
    return true;
  } catch {
    return false;
  }
}
