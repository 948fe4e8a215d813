"""Layout of one part of a drawing: states in layers from left to right, with few crossings.

Source: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", IEEE
Transactions on Systems, Man and Cybernetics 11 (2), 1981: layers by longest path, order by barycenters.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from sgl_runtime.grammar.drawing import DrawnPart

_NUM_SWEEPS = 12
_ROW_HEIGHT = 52.0
_CHAR_WIDTH = 6.7
_MIN_GAP = 56.0
_EDGE_MARGIN = 52.0
_MARK_WIDTH = 76.0

Point = tuple[float, float]


@dataclass(frozen=True)
class LaidOutPart:
    """Where things are.

    Attributes:
        places: Centre of each state.
        routes: For each edge the points that it passes, from its source to its target; one point for a loop.
        width, height: What it takes.
    """

    places: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


def lay_out(part: DrawnPart) -> LaidOutPart:
    """Find a place for each state of a part, and a way for each edge."""
    return _Layout(part).run()


class _Layout:
    """Nodes are the states, and behind them the points where long edges cross a layer."""

    def __init__(self, part: DrawnPart) -> None:
        self._part = part
        self._num_states = len(part.states)
        self._forward = self._acyclic()
        self._layer_of = self._layers()
        # For each edge its nodes from the layer on the left to the one on the right; loops have none.
        self._chains = self._with_crossings()
        self._layers_of_nodes = self._initial_order()
        self._left: dict[int, list[int]] = defaultdict(list)
        self._right: dict[int, list[int]] = defaultdict(list)
        for chain in self._chains:
            for first, second in pairwise(chain):
                self._right[first].append(second)
                self._left[second].append(first)

    def run(self) -> LaidOutPart:
        for sweep in range(_NUM_SWEEPS):
            self._sort(self._left if sweep % 2 == 0 else self._right, backwards=sweep % 2 == 1)
        y_of = self._heights()
        x_of_layer = self._columns()
        place = {node: (x_of_layer[self._layer_of[node]], y_of[node]) for node in y_of}
        routes = []
        for edge, chain, is_forward in zip(self._part.edges, self._chains, self._forward, strict=True):
            points = [place[node] for node in chain] or [place[edge.source]]
            routes.append(points if is_forward else points[::-1])
        height = max(y_of.values()) + _ROW_HEIGHT / 2
        return LaidOutPart([place[state] for state in range(self._num_states)], routes, x_of_layer[-1], height)

    def _acyclic(self) -> list[bool]:
        """For each edge whether it is laid out as it goes; the others, which close a circle, are turned round."""
        following: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, edge in enumerate(self._part.edges):
            following[edge.source].append((number, edge.target))
        forward = [True] * len(self._part.edges)
        done: set[int] = set()
        path: set[int] = set()
        for start in range(self._num_states):
            stack: list[tuple[int, int]] = [(start, 0)] if start not in done else []
            path.update({start} if stack else ())
            while stack:
                state, position = stack.pop()
                if position == len(following[state]):
                    path.discard(state)
                    done.add(state)
                    continue
                stack.append((state, position + 1))
                number, target = following[state][position]
                if target in path:
                    forward[number] = False
                elif target not in done:
                    path.add(target)
                    stack.append((target, 0))
        return forward

    def _ends(self, number: int) -> tuple[int, int]:
        edge = self._part.edges[number]
        return (edge.source, edge.target) if self._forward[number] else (edge.target, edge.source)

    def _layers(self) -> list[int]:
        """The layer of each state: behind all that lead to it."""
        following: dict[int, list[tuple[int, int]]] = defaultdict(list)
        num_before = [0] * self._num_states
        num_parallel = Counter(self._ends(number) for number in range(len(self._part.edges)))
        for first, second in num_parallel.elements():
            if first != second:
                # Edges between the same two states need room to part.
                following[first].append((second, 2 if num_parallel[first, second] > 1 else 1))
                num_before[second] += 1
        layer = [0] * self._num_states
        ready = [state for state in range(self._num_states) if not num_before[state]]
        while ready:
            state = ready.pop()
            for target, length in following[state]:
                layer[target] = max(layer[target], layer[state] + length)
                num_before[target] -= 1
                if not num_before[target]:
                    ready.append(target)
        return layer

    def _with_crossings(self) -> list[list[int]]:
        chains = []
        for number in range(len(self._part.edges)):
            first, second = self._ends(number)
            chain = [first]
            for layer in range(self._layer_of[first] + 1, self._layer_of[second]):
                chain.append(len(self._layer_of))
                self._layer_of.append(layer)
            chains.append([*chain, second] if first != second else [])
        return chains

    def _initial_order(self) -> list[list[int]]:
        layers: list[list[int]] = [[] for _ in range(max(self._layer_of) + 1)]
        for node, layer in enumerate(self._layer_of):
            layers[layer].append(node)
        return layers

    def _sort(self, neighbours: dict[int, list[int]], *, backwards: bool) -> None:
        position = {node: float(at) for layer in self._layers_of_nodes for at, node in enumerate(layer)}
        for layer in reversed(self._layers_of_nodes) if backwards else self._layers_of_nodes:
            wanted = {
                node: sum(position[each] for each in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else position[node]
                for node in layer
            }
            layer.sort(key=wanted.__getitem__)
            position.update({node: float(at) for at, node in enumerate(layer)})

    def _heights(self) -> dict[int, float]:
        """The height of each node: near its neighbours, in the order of its layer."""
        y_of = {node: at * _ROW_HEIGHT for layer in self._layers_of_nodes for at, node in enumerate(layer)}
        for _ in range(_NUM_SWEEPS):
            for layer in self._layers_of_nodes:
                wanted = []
                for node in layer:
                    near = [y_of[each] for each in (*self._left[node], *self._right[node])]
                    wanted.append(sum(near) / len(near) if near else y_of[node])
                y_of.update(zip(layer, _spread(wanted), strict=True))
        lowest = min(y_of.values())
        return {node: y - lowest + _ROW_HEIGHT / 2 for node, y in y_of.items()}

    def _columns(self) -> list[float]:
        """The place of each layer: far enough from the one before for the labels between them."""
        gaps = [_MIN_GAP] * len(self._layers_of_nodes)
        for edge, chain in zip(self._part.edges, self._chains, strict=True):
            width = _CHAR_WIDTH * len(edge.short_label)
            if len(chain) == 2:
                layer = self._layer_of[chain[1]]
                gaps[layer] = max(gaps[layer], width + _EDGE_MARGIN)
            elif chain:
                # Its label stands on the middle one of the layers between.
                layer = self._layer_of[chain[len(chain) // 2]]
                for side in (layer, layer + 1):
                    gaps[side] = max(gaps[side], (width + _EDGE_MARGIN) / 2)
        columns = [0.0]
        for layer in range(1, len(gaps)):
            has_mark = any(
                node < self._num_states and self._part.states[node].is_mark for node in self._layers_of_nodes[layer]
            )
            columns.append(columns[-1] + gaps[layer] + (_MARK_WIDTH / 2 if has_mark else 0.0))
        return columns


def _spread(wanted: list[float]) -> list[float]:
    """Heights near the wanted ones, in this order and not closer than a row."""
    # Blocks of nodes that stand as close as they may; each block where its nodes want to be on average.
    blocks: list[tuple[float, int]] = []
    for at, height in enumerate(wanted):
        blocks.append((height - at * _ROW_HEIGHT, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (first, num_first), (second, num_second) = blocks[-2:]
            count = num_first + num_second
            blocks[-2:] = [((first * num_first + second * num_second) / count, count)]
    heights: list[float] = []
    for base, count in blocks:
        heights += [base + (len(heights) + offset) * _ROW_HEIGHT for offset in range(count)]
    return heights
