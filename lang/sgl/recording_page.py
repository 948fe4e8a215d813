"""page: a recording as one HTML page: timelines of branches, coloured text, probabilities on hover.

The page is static: no script, nothing loaded, all text escaped.
"""

import json
import math
from collections.abc import Iterator
from html import escape
from typing import Any

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
h3 { font-size: .95rem; margin: 1rem 0 .25rem; } .soft { color: var(--soft); } .error { color: var(--error); }
.legend span { padding: .1rem .5rem; border-radius: .25rem; margin-right: .4rem; }
.lane { display: flex; align-items: center; gap: .5rem; margin: .2rem 0; }
.lane > a { width: 8rem; flex: none; color: inherit; font-size: .85rem; overflow: hidden; text-overflow: ellipsis; }
.track { position: relative; flex: 1; height: 1.4rem; background: var(--bar); border-radius: .25rem; }
.track i { position: absolute; top: .1rem; bottom: .1rem; min-width: 3px; border-radius: .2rem;
  border: 1px solid var(--line); overflow: hidden; white-space: nowrap; font: .75rem/1.1rem system-ui;
  padding: 0 .2rem; }
pre { margin: 0; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; white-space: pre-wrap;
  overflow-wrap: anywhere; font: .85rem/1.55 ui-monospace, monospace; }
.gen { background: var(--gen); } .constrained { background: var(--constrained); } .select { background: var(--select); }
.role { background: var(--role); color: var(--soft); } .joined { background: var(--joined); }
pre span[title] { border-radius: .15rem; } pre b { font-weight: normal; }
pre b:hover { outline: 1px solid currentColor; }
.failed { outline: 1px solid var(--error); }
details { margin: .25rem 0; } summary { cursor: pointer; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
td, th { border: 1px solid var(--line); padding: .2rem .5rem; text-align: left; vertical-align: top; }
"""

LEGEND = (
    ("text", "prompt"),
    ("role", "chat template"),
    ("gen", "generated"),
    ("constrained", "generated under a constraint"),
    ("select", "selected"),
    ("joined", "joined branch"),
)


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
    began = escape(recording["started_at"])
    yield f'<p class="soft">Began {began}. {cached} of {prompt} prompt tokens were cached.</p>'
    legend = "".join(f'<span class="{kind}">{what}</span>' for kind, what in LEGEND)
    yield f'<p class="legend">{legend}</p>'
    for number, run in enumerate(recording["runs"]):
        yield from _run(number, run)
    yield "</body></html>\n"


def _run(number: int, run: dict[str, Any]) -> Iterator[str]:
    nodes = [node for state in run["states"] for node in state["nodes"]]
    start = min((node["started_s"] for node in nodes), default=0.0)
    length = max((node["ended_s"] for node in nodes), default=0.0) - start
    yield f'<section><h2>{escape(run["program"])} <span class="soft">{length * 1000:.1f} ms</span></h2>'
    for state in run["states"]:
        depth = _depth(run["states"], state)
        yield f'<div class="lane"><a href="#r{number}s{state["index"]}" style="padding-left:{depth * 0.8:.1f}rem">'
        yield f'{_title(state)}</a><div class="track">'
        for node in state["nodes"]:
            if node["kind"] in ("gen", "select"):
                yield _bar(node, start, max(length, 1e-9))
        yield "</div></div>"
    for state in run["states"]:
        yield f'<h3 id="r{number}s{state["index"]}">{_title(state)}</h3><pre>\n'
        for node in state["nodes"]:
            yield _span(node)
        yield "</pre>"
        yield from _details(state)
    yield "</section>"


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
            title = f"{math.exp(logprob):.1%} (token {token_id})"
            marked.append(f'<b title="{title}">{escape(shown)}</b>')
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
            f"{(node['ended_s'] - node['started_s']) * 1000:.1f} ms",
            _ended_by(node),
            escape(constraint),
            escape(json.dumps(node["sampling_params"] or {}, ensure_ascii=False)),
            f"<details><summary>show</summary>{escape(ids)}</details>" if ids else "",
        ]
        yield "<tr>" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"
        if node["choices"]:
            shown = "; ".join(f"{item['text']!r} {item['probability']:.1%}" for item in node["choices"])
            yield f'<tr><td><td colspan="7">{escape(shown)}</tr>'
    yield "</table></div></details>"


def _ended_by(node: dict[str, Any]) -> str:
    if node["error"]:
        return f'<span class="error">{escape(node["error"])}</span>'
    reason = node["finish_reason"]
    return "" if reason is None else escape(" ".join(str(value) for value in reason.values() if value is not None))


def _hover(node: dict[str, Any]) -> str:
    parts = [f"{node['kind']} {node['name'] or ''}".strip()]
    if node["counts"]:
        parts.append(f"{node['counts'].get('completion_tokens', 0)} tokens, {_ms(node)} ms")
    parts += [f"{item['text']!r} {item['probability']:.1%}" for item in node["choices"]]
    if node["error"]:
        parts.append(node["error"])
    return escape("\n".join(parts))


def _ms(node: dict[str, Any]) -> str:
    return f"{(node['ended_s'] - node['started_s']) * 1000:.1f}"


def _classes(node: dict[str, Any]) -> str:
    kind = "constrained" if node["constraint"] else node["kind"]
    return f"{kind} failed" if node["error"] else kind


def _title(state: dict[str, Any]) -> str:
    return "state" if state["parent"] is None else f"branch {state['index']} of {state['parent'] or 'state'}"


def _depth(states: list[dict[str, Any]], state: dict[str, Any]) -> int:
    depth = 0
    while state["parent"] is not None:
        state, depth = states[state["parent"]], depth + 1
    return depth


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
