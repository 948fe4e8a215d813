"""page: a recording as one HTML page: timelines of branches, coloured text, probabilities on hover.

The page is static: no script, nothing loaded, all text escaped.
"""

import json
import math
from collections.abc import Iterator
from datetime import datetime
from html import escape
from typing import Any, get_args

from sgl.constraints import ConstraintKind

STYLE = """
:root { color-scheme: light dark; --back: #fff; --fore: #1b1f24; --soft: #6b7280; --line: #d9dde3; --bar: #eef0f3;
  --gen: #cfe8d5; --constrained: #d6e0fb; --select: #fbe3c0; --role: #ece7f5; --joined: #f3e3ea; --error: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --fore: #e6e8eb; --soft: #9aa3ad; --line: #343941;
  --bar: #22262c; --gen: #1f4a2c; --constrained: #27396b; --select: #5c4318; --role: #3a3350; --joined: #4d2f3c;
  --error: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 75rem; background: var(--back); color: var(--fore);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: .95rem; margin: 1rem 0 .25rem; } .soft { color: var(--soft); }
.error { color: var(--error); overflow-wrap: anywhere; }
.legend span { display: inline-block; padding: .1rem .5rem; border-radius: .25rem; margin-right: .4rem; }
.lane { display: flex; align-items: center; gap: .5rem; margin: .2rem 0; }
.lane > a, .lane > span { width: 9rem; flex: none; color: inherit; font-size: .85rem; white-space: nowrap;
  overflow: hidden; text-overflow: ellipsis; text-decoration: none; }
.lane > a:hover { text-decoration: underline; } .axis { font-size: .75rem; }
.axis > div { flex: 1; display: flex; justify-content: space-between; }
.track { position: relative; flex: 1; height: 1.4rem; background: var(--bar); border-radius: .25rem; }
.track i { position: absolute; top: .1rem; bottom: .1rem; min-width: 3px; border-radius: .2rem;
  border: 1px solid var(--line); overflow: hidden; white-space: nowrap; font: .75rem/1.1rem system-ui;
  padding: 0 .2rem; }
.track i:hover { z-index: 1; outline: 1px solid currentColor; }
:target + pre { border-color: currentColor; }
pre { margin: 0; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; white-space: pre-wrap;
  overflow-wrap: anywhere; font: .85rem/1.55 ui-monospace, monospace; }
.gen { background: var(--gen); } .constrained { background: var(--constrained); } .select { background: var(--select); }
.role { background: var(--role); color: var(--soft); } .joined { background: var(--joined); }
pre span[title] { border-radius: .15rem; } pre b { font-weight: normal; }
pre b:hover { outline: 1px solid currentColor; }
b.unsure, b.unlikely { font-weight: normal; }
b.unsure { text-decoration: underline dotted currentColor; text-underline-offset: .25em; }
b.unlikely { text-decoration: underline wavy var(--error) 1px; text-underline-offset: .2em; }
.failed { outline: 1px solid var(--error); }
details { margin: .25rem 0; } summary { cursor: pointer; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td { white-space: nowrap; }
td.long { white-space: normal; min-width: 14rem;
  max-width: 26rem; overflow-wrap: anywhere; font: .8rem/1.45 ui-monospace, monospace; }
"""

LEGEND = (
    ("text", "prompt"),
    ("role", "chat template"),
    ("gen", "generated"),
    ("constrained", "generated under a constraint"),
    ("select", "selected"),
    ("joined", "joined branch"),
)
# Below these shares a token is underlined.
UNSURE, UNLIKELY = 0.5, 0.1
# Table cells with more characters than this may break into lines.
LONG_CELL = 30
CONSTRAINTS = get_args(ConstraintKind)


def page(recording: dict[str, Any]) -> str:
    """The page.

    Args:
        recording: What `Recording.to_dict` gives.
    """
    return "".join(_page(recording))


def _page(recording: dict[str, Any]) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>sgl recording</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{STYLE}</style></head><body>"
    nodes = [node for run in recording["runs"] for state in run["states"] for node in state["nodes"]]
    generated, cached, prompt = (
        sum(node["counts"].get(name, 0) for node in nodes)
        for name in ("completion_tokens", "cached_tokens", "prompt_tokens")
    )
    yield f"<h1>{_count(len(recording['runs']), 'run')}, {_count(generated, 'generated token')}</h1>"
    began = datetime.fromisoformat(recording["started_at"]).strftime("%Y-%m-%d %H:%M:%S %Z")
    yield f'<p class="soft">Began {escape(began)}. {cached} of {prompt} prompt tokens were found in the cache.</p>'
    legend = "".join(f'<span class="{kind}">{what}</span>' for kind, what in LEGEND)
    yield f'<p class="legend">{legend}</p>'
    if any(node["tokens"] for node in nodes):
        yield '<p class="soft">Point at a token to see its probability; <b class="unsure">tokens below '
        yield f'{UNSURE:.0%}</b> and <b class="unlikely">tokens below {UNLIKELY:.0%}</b> are underlined.</p>'
    for number, run in enumerate(recording["runs"]):
        yield from _run(number, run)
    yield "</body></html>\n"


def _run(number: int, run: dict[str, Any]) -> Iterator[str]:
    nodes = [node for state in run["states"] for node in state["nodes"]]
    start = min((node["started_s"] for node in nodes), default=0.0)
    length = max((node["ended_s"] for node in nodes), default=0.0) - start
    yield f'<section><h2>{escape(run["program"])} <span class="soft">{_duration(length)}</span></h2>'
    for state in run["states"]:
        depth = _depth(run["states"], state)
        yield f'<div class="lane"><a href="#r{number}s{state["index"]}" style="padding-left:{depth * 0.8:.1f}rem">'
        yield f'{_title(state, is_short=True)}</a><div class="track">'
        for node in state["nodes"]:
            if node["kind"] in ("gen", "select"):
                yield _bar(node, start, max(length, 1e-9))
        yield "</div></div>"
    yield f'<div class="lane axis soft"><span></span><div><span>0</span><span>{_duration(length / 2)}</span>'
    yield f"<span>{_duration(length)}</span></div></div>"
    for state in run["states"]:
        yield f'<h3 id="r{number}s{state["index"]}">{_title(state)}</h3><pre>\n'
        for node in state["nodes"]:
            yield _span(node)
        yield "</pre>"
        yield from (_failure(node) for node in state["nodes"] if node["error"])
        yield from _details(state)
    yield "</section>"


def _failure(node: dict[str, Any]) -> str:
    place = f" at {node['source']}" if node["source"] else ""
    return f'<p class="error">{escape(_named(node) + place)}: {escape(node["error"])}</p>'


def _bar(node: dict[str, Any], start: float, length: float) -> str:
    left = 100 * (node["started_s"] - start) / length
    width = 100 * (node["ended_s"] - node["started_s"]) / length
    name = escape(node["name"] or node["kind"])
    return f'<i class="{_classes(node)}" style="left:{left:.3f}%;width:{width:.3f}%" title="{_hover(node)}">{name}</i>'


def _span(node: dict[str, Any]) -> str:
    if node["kind"] == "text":
        return escape(node["text"])
    return f'<span class="{_classes(node)}" title="{_hover(node)}">{_tokens(node)}</span>'


def _tokens(node: dict[str, Any]) -> str:
    """The text of a node, each token with its probability where that is known and the tokens make up the text."""
    pieces = [token[2] or "" for token in node["tokens"]]
    whole = "".join(pieces)
    if not pieces or not whole.startswith(node["text"]):
        return escape(node["text"])
    marked, left = [], node["text"]
    for (logprob, token_id, _), piece in zip(node["tokens"], pieces, strict=True):
        shown, left = left[: len(piece)], left[len(piece) :]
        if shown:
            share = math.exp(logprob)
            style = ' class="unlikely"' if share < UNLIKELY else ' class="unsure"' if share < UNSURE else ""
            known_as = "" if token_id is None else f" (token {token_id})"
            marked.append(f'<b{style} title="{share:.1%}{known_as}">{escape(shown)}</b>')
    return "".join(marked)


def _details(state: dict[str, Any]) -> Iterator[str]:
    calls = [node for node in state["nodes"] if node["kind"] in ("gen", "select") or node["error"]]
    if not calls:
        return
    yield f"<details><summary>{_count(len(calls), 'call')}</summary><div class='wide'><table>"
    yield "<tr><th>variable<th>source<th>tokens<th>time<th>ended by<th>constraint<th>sampling<th>ids</tr>"
    for node in calls:
        counts = node["counts"]
        tokens = f"{counts.get('prompt_tokens', '?')} in ({counts.get('cached_tokens', '?')} cached), "
        tokens += f"{counts.get('completion_tokens', '?')} out"
        constraint = f"{node['constraint']['kind']}: {node['constraint']['text']}" if node["constraint"] else ""
        ids = f"in {node['prompt_ids']}\nout {node['output_ids']}" if node["prompt_ids"] else ""
        cells = [
            escape(node["name"] or node["kind"]),
            escape(node["source"] or ""),
            escape(tokens),
            _duration(node["ended_s"] - node["started_s"]),
            _ended_by(node),
            escape(constraint),
            _sampling(node),
            f"<details><summary>show</summary>{escape(ids)}</details>" if ids else "",
        ]
        marks = [' class="long"' if len(cell) > LONG_CELL else "" for cell in cells]
        yield "<tr>" + "".join(f"<td{mark}>{cell}" for mark, cell in zip(marks, cells, strict=True)) + "</tr>"
        if node["choices"]:
            yield f'<tr><td><td colspan="7">{escape("; ".join(_choices(node)))}</tr>'
    yield "</table></div></details>"


def _sampling(node: dict[str, Any]) -> str:
    """Settings in effect; the constraint has a column of its own."""
    settings = {name: value for name, value in (node["sampling_params"] or {}).items() if name not in CONSTRAINTS}
    return escape(", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()))


def _choices(node: dict[str, Any]) -> list[str]:
    return [
        f"{item['text']!r} {item['probability']:.1%}" + (" (picked)" if item["text"] == node["text"] else "")
        for item in node["choices"]
    ]


def _ended_by(node: dict[str, Any]) -> str:
    if node["error"]:
        return f'<span class="error">{escape(node["error"])}</span>'
    reason = node["finish_reason"]
    return "" if reason is None else escape(" ".join(str(value) for value in reason.values() if value is not None))


def _hover(node: dict[str, Any]) -> str:
    parts = [_named(node)]
    if node["counts"]:
        duration = _duration(node["ended_s"] - node["started_s"])
        parts.append(f"{node['counts'].get('completion_tokens', 0)} tokens, {duration}")
    parts += _choices(node)
    if node["error"]:
        parts.append(node["error"])
    return escape("\n".join(parts))


def _named(node: dict[str, Any]) -> str:
    return f"{node['kind']} {node['name'] or ''}".strip()


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _classes(node: dict[str, Any]) -> str:
    kind = "constrained" if node["constraint"] else node["kind"]
    return f"{kind} failed" if node["error"] else kind


def _title(state: dict[str, Any], *, is_short: bool = False) -> str:
    if state["parent"] is None:
        return "state"
    is_nested = state["parent"] and not is_short
    return f"branch {state['index']}" + (f" of branch {state['parent']}" if is_nested else "")


def _depth(states: list[dict[str, Any]], state: dict[str, Any]) -> int:
    depth = 0
    while state["parent"] is not None:
        state, depth = states[state["parent"]], depth + 1
    return depth


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
