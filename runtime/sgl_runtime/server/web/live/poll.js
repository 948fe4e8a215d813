// Asks for the load once a second, while someone looks.

import { get, keyEvents } from "../core/api.js";

const EVERY_MS = 1000;
const AFTER_FAILURE_MS = 3000;

/**
 * Ask again and again, while the page is in sight.
 * @param {{onStats: (stats: object) => void, onFailure: (error: Error) => void}} told
 */
export function startPolling({ onStats, onFailure }) {
  let timer = null;
  let isAsking = false;
  let needsKey = false;

  const ask = async () => {
    timer = null;
    if (document.hidden || needsKey || isAsking) return;
    isAsking = true;
    let wait = EVERY_MS;
    try {
      onStats(await get("live_stats"));
    } catch (error) {
      wait = AFTER_FAILURE_MS;
      needsKey = error.status === 401;
      onFailure(error);
    }
    isAsking = false;
    timer ??= setTimeout(ask, wait);
  };
  const now = () => {
    clearTimeout(timer);
    ask();
  };
  document.addEventListener("visibilitychange", now);
  keyEvents.addEventListener("set", () => {
    needsKey = false;
    now();
  });
  ask();
}
