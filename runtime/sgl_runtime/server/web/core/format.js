// Numbers, times and shares as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A count: 12,345. */
export function count(value) {
  return whole.format(value);
}

/** A count in little room: 12.3K. */
export function compact(value) {
  return Math.abs(value) < 10000 ? decimal(value) : short.format(value);
}

/** A number with as many decimals as it needs. */
export function decimal(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return whole.format(value);
  return String(Number(value.toFixed(size >= 10 ? 1 : 2)));
}

/** Seconds: 850 µs, 12 ms, 3.4 s, 2 min 5 s, 3 h 20 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${decimal(seconds * 1000)} ms`;
  if (seconds < 60) return `${decimal(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** A share of 1: 83 %, 0.04 %. */
export function percent(share) {
  const value = share * 100;
  if (value >= 10) return `${Number(value.toFixed(1))} %`;
  if (value >= 0.01 || value === 0) return `${Number(value.toPrecision(2))} %`;
  return "< 0.01 %";
}

/** Bytes: 12.3 MB. */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (value >= 1000 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${decimal(value)} ${units[step]}`;
}

/** The time of day of seconds since the epoch. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

/** One token as it can be shown in a line: spaces and line breaks become visible. */
export function visibleToken(text) {
  if (text === "") return "∅";
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣");
}

/** "1 token", "2 tokens". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
