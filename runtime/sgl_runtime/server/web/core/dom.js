// Elements from plain calls: el("button", {class: "button", onclick: send}, "Send").

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes] Names with `on` are listeners, `value`, `checked` and the like are properties,
 *   null and false leave an attribute out.
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * Make an element of a drawing.
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Put children in the place of those that a node has. */
export function replace(node, ...children) {
  node.replaceChildren(...children.filter(isShown).map(asNode));
  return node;
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "tabIndex", "indeterminate"]);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) node[name] = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false) node.setAttribute(name, String(value));
  }
  node.append(...children.filter(isShown).map(asNode));
  return node;
}

function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

let lastId = 0;

/** An id that no other element has. */
export function freshId(stem) {
  lastId += 1;
  return `${stem}-${lastId}`;
}
