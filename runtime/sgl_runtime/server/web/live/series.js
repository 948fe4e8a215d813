// What the server said each second, and the figures that are made of it.

const KEPT_S = 300;
const RATE_S = 5;
const LATENCY_S = 30;

/** Samples of the last five minutes. */
export class Series {
  constructor() {
    /** @type {{at: number, stats: object}[]} */
    this.samples = [];
  }

  /** Keep what `/live_stats` said. */
  add(stats) {
    const at = stats.time;
    const last = this.samples.at(-1);
    // A server that was started anew counts from zero.
    if (last && (at < last.at || (stats.totals?.requests ?? 0) < (last.stats.totals?.requests ?? 0))) this.samples = [];
    this.samples.push({ at, stats });
    while (this.samples[0].at < at - KEPT_S) this.samples.shift();
  }

  get latest() {
    return this.samples.at(-1) ?? null;
  }

  /** Points of a figure: [seconds before now, value or null]. */
  points(figure) {
    const now = this.latest?.at ?? 0;
    return this.samples.map((sample, place) => [sample.at - now, figure(sample.stats, this, place)]);
  }

  /** The sample that is at least so many seconds before the one at a place; null where there is none. */
  before(place, seconds) {
    const { at } = this.samples[place];
    for (let earlier = place - 1; earlier >= 0; earlier -= 1) {
      if (this.samples[earlier].at <= at - seconds + 0.2) return this.samples[earlier];
    }
    return place > 0 ? this.samples[0] : null;
  }
}

/** A counter of the scheduler; null where it did not answer. */
export function counter(name) {
  return ({ scheduler }) => scheduler?.[name] ?? null;
}

/** How fast a total grows, in units a second. */
export function rate(name) {
  return (stats, series, place) => {
    const earlier = series.before(place, RATE_S);
    if (!earlier || !stats.totals) return null;
    const seconds = stats.time - earlier.at;
    return seconds > 0 ? (stats.totals[name] - earlier.stats.totals[name]) / seconds : null;
  };
}

/** Share of the prompt tokens of the last seconds that were cached; null where no prompt came. */
export function hitRate(stats, series, place) {
  const earlier = series.before(place, LATENCY_S);
  if (!earlier || !stats.totals) return null;
  const prompt = stats.totals.prompt_tokens - earlier.stats.totals.prompt_tokens;
  return prompt > 0 ? (stats.totals.cached_tokens - earlier.stats.totals.cached_tokens) / prompt : null;
}

/** Share of all slots that the prefix cache holds. */
export function cachedShare({ scheduler }) {
  return scheduler?.total_slots && "cached_slots" in scheduler ? scheduler.cached_slots / scheduler.total_slots : null;
}

/** A percentile of the times of the last seconds; null where there were none. */
export function percentile(name, share) {
  return (stats, series, place) => {
    const earlier = series.before(place, LATENCY_S);
    if (!earlier || !stats.latencies) return null;
    const { bounds, counts } = stats.latencies[name];
    const before = earlier.stats.latencies[name].counts;
    return quantile(bounds, counts.map((value, bucket) => value - before[bucket]), share);
  };
}

/**
 * A quantile of a histogram, taken to be even inside each bucket.
 * @param {number[]} bounds Upper bounds; one more bucket follows.
 * @param {number[]} counts How many are at most so large.
 * @param {number} share From 0 to 1.
 * @returns {number | null}
 */
export function quantile(bounds, counts, share) {
  const total = counts.at(-1);
  if (!total) return null;
  const rank = share * total;
  const bucket = counts.findIndex((value) => value >= rank);
  if (bucket >= bounds.length) return bounds.at(-1);
  const low = bucket ? bounds[bucket - 1] : 0;
  const below = bucket ? counts[bucket - 1] : 0;
  const inside = counts[bucket] - below;
  return low + (inside ? (rank - below) / inside : 1) * (bounds[bucket] - low);
}
