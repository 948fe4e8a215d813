// Where in a JSON text a JSON pointer leads.

const SPACE = /[\s]*/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const SCALAR = /[^\s,\]}]+/y;

/**
 * The range of the value that a pointer names, or of the nearest one around it.
 * @param {string} text Valid JSON.
 * @param {string} pointer As in #/properties/a.
 * @returns {[number, number]} Begin and end; the whole text where nothing is found.
 */
export function rangeOf(text, pointer) {
  const wanted = pointer.replace(/^#/, "").split("/").slice(1).map(unescape);
  let best = [0, text.length];
  let bestDepth = -1;
  walk(text, 0, [], (path, begin, end) => {
    const depth = path.length;
    if (depth > bestDepth && depth <= wanted.length && path.every((part, place) => part === wanted[place])) {
      best = [begin, end];
      bestDepth = depth;
    }
  });
  return best;
}

function unescape(part) {
  let text = part;
  try {
    text = decodeURIComponent(part);
  } catch {
    // A percent sign of its own.
  }
  return text.replaceAll("~1", "/").replaceAll("~0", "~");
}

/** Call `visit` for each value, those inside before those around them; the place behind the value. */
function walk(text, start, path, visit) {
  const begin = skip(SPACE, text, start);
  let end;
  if (text[begin] === "{") end = walkObject(text, begin, path, visit);
  else if (text[begin] === "[") end = walkArray(text, begin, path, visit);
  else end = skip(text[begin] === '"' ? STRING : SCALAR, text, begin);
  visit(path, begin, end);
  return end;
}

function walkObject(text, begin, path, visit) {
  let place = skip(SPACE, text, begin + 1);
  while (place < text.length && text[place] !== "}") {
    const keyEnd = skip(STRING, text, place);
    if (keyEnd === place) return text.length;
    const key = JSON.parse(text.slice(place, keyEnd));
    place = skip(SPACE, text, keyEnd) + 1;
    place = skip(SPACE, text, walk(text, place, [...path, key], visit));
    if (text[place] === ",") place = skip(SPACE, text, place + 1);
  }
  return place + 1;
}

function walkArray(text, begin, path, visit) {
  let place = skip(SPACE, text, begin + 1);
  let index = 0;
  while (place < text.length && text[place] !== "]") {
    const end = walk(text, place, [...path, String(index)], visit);
    if (end === place) return text.length;
    place = skip(SPACE, text, end);
    if (text[place] === ",") place = skip(SPACE, text, place + 1);
    index += 1;
  }
  return place + 1;
}

function skip(pattern, text, place) {
  pattern.lastIndex = place;
  return pattern.test(text) ? pattern.lastIndex : place;
}
