"""A drawing as SVG, without any other program."""

from html import escape
from itertools import pairwise

from sgl_runtime.grammar.drawing import DrawnEdge, DrawnPart, DrawnState, EdgeKind
from sgl_runtime.grammar.drawing_layout import LaidOutPart, Point, lay_out

_RADIUS = 13.0
_MARGIN = 46.0
_TITLE_HEIGHT = 30.0
_MARK_SIZE = (66.0, 20.0)
_LOOP_HEIGHT = 26.0
_CHAR_WIDTH = 6.1
_COLOURS = {EdgeKind.PLAIN: "#444", EdgeKind.PUSH: "#1f5fbf", EdgeKind.POP: "#b35c00"}
_STYLE = """
  text { font: 10px ui-monospace, Menlo, Consolas, monospace; }
  .title { font-size: 13px; font-weight: bold; fill: #222; }
  .legend { fill: #555; }
  .state { fill: #fff; stroke: #222; stroke-width: 1.2; }
  .name { text-anchor: middle; dominant-baseline: central; fill: #222; }
  .label { text-anchor: middle; dominant-baseline: central; }
  .under { fill: #fff; fill-opacity: 0.85; }
  .plain, .push, .pop { fill: none; stroke-width: 1.2; }
  .push { stroke-width: 2.2; }
"""


def to_svg(parts: list[DrawnPart]) -> str:
    """The parts, one below the other."""
    body: list[str] = []
    top = 2 * _TITLE_HEIGHT
    width = 660.0
    for part in parts:
        laid_out = lay_out(part)
        body.append(f'<text class="title" x="16" y="{top:.0f}">{escape(part.title)}</text>')
        top += _LOOP_HEIGHT
        body.append(f'<g transform="translate({_MARGIN:.0f},{top:.0f})">')
        body += _part(part, laid_out)
        body.append("</g>")
        top += laid_out.height + _TITLE_HEIGHT
        width = max(width, laid_out.width + 2 * _MARGIN + _MARK_SIZE[0])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}"'
            f' viewBox="0 0 {width:.0f} {top:.0f}">',
            f"<style>{_STYLE}</style>",
            _markers(),
            '<rect width="100%" height="100%" fill="#fff"/>',
            _legend(),
            *body,
            "</svg>",
            "",
        ]
    )


def _markers() -> str:
    shape = '<path d="M0,0 L8,3.5 L0,7 z" fill="{colour}" stroke="none"/>'
    markers = [
        f'<marker id="{kind.value}" viewBox="0 0 8 7" refX="7" refY="3.5" markerWidth="8" markerHeight="7"'
        f' markerUnits="userSpaceOnUse" orient="auto">{shape.format(colour=_COLOURS[kind])}</marker>'
        for kind in EdgeKind
    ]
    return f"<defs>{''.join(markers)}</defs>"


def _legend() -> str:
    entries = ((EdgeKind.PLAIN, "byte"), (EdgeKind.PUSH, "push: call, then go on"), (EdgeKind.POP, "pop: return"))
    texts, left = [], 16.0
    for kind, text in entries:
        ends = f'class="{kind.value}" marker-end="url(#{kind.value})"'
        texts.append(f'<path d="M{left:.0f},18 h24" stroke="{_COLOURS[kind]}" {ends}/>')
        texts.append(f'<text class="legend" x="{left + 30:.0f}" y="21">{text}</text>')
        left += 60 + _CHAR_WIDTH * len(text)
    texts.append(f'<text class="legend" x="{left:.0f}" y="21">double circle: the output may end</text>')
    return "".join(texts)


def _part(part: DrawnPart, laid_out: LaidOutPart) -> list[str]:
    lines = [_start_arrow(laid_out.places[0])]
    labels = []
    for edge, route in zip(part.edges, laid_out.routes, strict=True):
        path, middle = _loop(route[0]) if len(route) == 1 else _curve(part, edge, route)
        kind = edge.kind.value
        lines.append(f'<path class="{kind}" d="{path}" stroke="{_COLOURS[edge.kind]}" marker-end="url(#{kind})"/>')
        labels.append(_label(edge, middle))
    lines += [_state(state, place) for state, place in zip(part.states, laid_out.places, strict=True)]
    return lines + labels


def _start_arrow(place: Point) -> str:
    x, y = place
    return (
        f'<path class="plain" d="M{x - _RADIUS - 24:.1f},{y:.1f} L{x - _RADIUS - 1:.1f},{y:.1f}"'
        f' stroke="{_COLOURS[EdgeKind.PLAIN]}" marker-end="url(#plain)"/>'
    )


def _state(state: DrawnState, place: Point) -> str:
    x, y = place
    name = f'<text class="name" x="{x:.1f}" y="{y:.1f}">{escape(state.name)}</text>'
    if state.is_mark:
        width, height = _MARK_SIZE
        box = f'x="{x - _RADIUS:.1f}" y="{y - height / 2:.1f}" width="{width:.0f}" height="{height:.0f}" rx="4"'
        name = f'<text class="name" x="{x - _RADIUS + width / 2:.1f}" y="{y:.1f}">{escape(state.name)}</text>'
        return f'<rect class="state" {box} style="stroke:{_COLOURS[EdgeKind.POP]}"/>{name}'
    inner = f'<circle class="state" cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS - 3:.1f}"/>' if state.is_accepting else ""
    return f'<circle class="state" cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS:.1f}"/>{inner}{name}'


def _label(edge: DrawnEdge, middle: Point) -> str:
    x, y = middle
    text = edge.short_label
    width = _CHAR_WIDTH * len(text) + 4
    under = f'<rect class="under" x="{x - width / 2:.1f}" y="{y - 7:.1f}" width="{width:.1f}" height="14"/>'
    colour = _COLOURS[edge.kind]
    full = f"<title>{escape(edge.label)}</title>" if text != edge.label else ""
    return f'<g>{full}{under}<text class="label" x="{x:.1f}" y="{y:.1f}" fill="{colour}">{escape(text)}</text></g>'


def _loop(place: Point) -> tuple[str, Point]:
    x, y = place
    top, rim = y - _RADIUS - _LOOP_HEIGHT, y - _RADIUS + 2
    path = f"M{x - 7:.1f},{rim:.1f} C{x - 18:.1f},{top:.1f} {x + 18:.1f},{top:.1f} {x + 7:.1f},{rim:.1f}"
    return path, (x, y - _RADIUS - _LOOP_HEIGHT * 0.72)


def _curve(part: DrawnPart, edge: DrawnEdge, route: list[Point]) -> tuple[str, Point]:
    """A path through the points of a route, which leaves and enters the states at their rims."""
    direction = 1.0 if route[-1][0] >= route[0][0] else -1.0
    points = [
        (route[0][0] + direction * _RADIUS, route[0][1]),
        *route[1:-1],
        (route[-1][0] - direction * (_RADIUS + 1), route[-1][1]),
    ]
    pieces = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (x2 - x1) * 0.45
        pieces.append(f"C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}")
    if len(points) > 2:
        return " ".join(pieces), points[len(points) // 2]
    (x1, y1), (x2, y2) = points
    return " ".join(pieces), ((x1 + x2) / 2, (y1 + y2) / 2)
