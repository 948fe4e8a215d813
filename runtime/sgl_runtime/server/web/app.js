// Starts the page: asks what is served, and builds the views.

import { get, keyEvents } from "./core/api.js";
import { replace, el } from "./core/dom.js";
import { plural } from "./core/format.js";
import { startKeyDialog } from "./core/key_dialog.js";
import { showShortcuts, startKeys } from "./core/keys.js";
import { problemCard } from "./core/problem.js";
import { startTabs } from "./core/tabs.js";
import { startTheme } from "./core/theme.js";
import { Inspector } from "./inspector/inspector.js";
import { LiveView } from "./live/live.js";
import { startPolling } from "./live/poll.js";
import { Playground } from "./playground/playground.js";
import { Vectors } from "./playground/vectors.js";

const RETRY_MS = 3000;

const byId = (id) => document.getElementById(id);

startTheme(byId("theme-button"));
startKeyDialog(byId("key-button"));
byId("help-button").addEventListener("click", showShortcuts);
start(await servedModel());

/** What is served, as soon as the server says it. */
async function servedModel() {
  for (;;) {
    try {
      return await get("get_model_info");
    } catch (error) {
      replace(byId("view-playground"), el("div", { class: "start-problem" }, problemCard(error)));
      await (error.status === 401 ? nextKey() : new Promise((resolve) => setTimeout(resolve, RETRY_MS)));
    }
  }
}

function nextKey() {
  return new Promise((resolve) => keyEvents.addEventListener("set", resolve, { once: true }));
}

function start(model) {
  byId("model-name").textContent = model.served_model_name;
  byId("model-name").title = model.served_model_name;
  let tabs = null;
  const inspect = (which) => tabs.show("inspector", which);
  const Desk = model.is_generation ? Playground : Vectors;
  const desk = new Desk(byId("view-playground"), { model, onInspect: inspect });
  const live = new LiveView(byId("view-live"), model);
  const inspector = new Inspector(byId("view-inspector"), { choose: inspect });
  tabs = startTabs(byId("tabs"), (view, rest) => {
    if (view === "live") live.show();
    if (view === "inspector") inspector.show(rest);
  });
  startKeys({
    show: (view) => tabs.show(view),
    toMessage: () => {
      tabs.show("playground");
      desk.focusMessage();
    },
    stop: () => desk.stop(),
  });
  startPolling({
    onStats: (stats) => {
      live.update(stats);
      showPulse(stats);
    },
    onFailure: (error) => {
      live.fail(error);
      setPulse("down", error.status === 401 ? "needs a key" : "no answer");
    },
  });
}

function showPulse({ scheduler }) {
  if (scheduler === null) setPulse("paused", "busy");
  else if (scheduler.is_paused) setPulse("paused", "paused");
  else if (scheduler.num_running + scheduler.num_waiting) setPulse("up", plural(scheduler.num_running + scheduler.num_waiting, "request"));
  else setPulse("up", "idle");
}

/** Words change seldom, so that nothing is read out each second. */
function setPulse(state, words) {
  const pulse = byId("pulse");
  pulse.dataset.state = state;
  if (pulse.textContent !== words) pulse.textContent = words;
}
