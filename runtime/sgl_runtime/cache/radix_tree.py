"""RadixTree: the shape of the prefix cache; edges are found, split, added and removed here."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import IntArray
from sgl_runtime.cache.radix_node import NUM_BYTES, RadixNode


class RadixRoot(RadixNode):
    """Holds the edges of one extra key, at least one.

    Attributes:
        extra_key: The key.
    """

    __slots__ = ("extra_key",)

    def __init__(self, extra_key: str | None, *, serial: int) -> None:
        super().__init__(b"", b"", None, serial=serial)
        self.extra_key = extra_key


@dataclass(frozen=True)
class Descent:
    """How far a key leads down the tree.

    Attributes:
        nodes: Edges that the key runs through in full, in order.
        num_bytes: Of the key in them.
        partial: The edge in which it ends, if in one.
        num_partial: Bytes of that edge that it shares; whole pages, at least one.
    """

    nodes: list[RadixNode]
    num_bytes: int
    partial: RadixNode | None
    num_partial: int


def as_bytes(values: NDArray[np.integer]) -> bytes:
    """Ids or slots in the form that edges keep."""
    return values.astype("<i4", copy=False).tobytes()


def as_array(data: bytes) -> IntArray:
    """Ids or slots of an edge; read-only."""
    return np.frombuffer(data, dtype="<i4")


class RadixTree:
    """Edges of whole pages below one root for each extra key.

    Source: arXiv:2312.07104 section 3.

    Args:
        page_size: Tokens of a page.

    Attributes:
        top: Stands for the empty prefix of every extra key.
        page_bytes: Bytes of a page of ids in an edge.
    """

    def __init__(self, *, page_size: int) -> None:
        self._serials = itertools.count()
        self.page_bytes = page_size * NUM_BYTES
        self.top = RadixNode(b"", b"", None, serial=next(self._serials))
        self._roots: dict[str | None, RadixRoot] = {}

    def key(self, ids: NDArray[np.int64]) -> bytes:
        """The whole pages of some ids."""
        key = as_bytes(ids)
        return key[: len(key) // self.page_bytes * self.page_bytes]

    def root(self, extra_key: str | None) -> RadixNode:
        """What holds the edges of an extra key; `top`, which has none, where there are none."""
        return self._roots.get(extra_key, self.top)

    def descend(self, start: RadixNode, key: bytes, extra_key: str | None) -> Descent:
        """Follow a key from a node; nothing is changed."""
        node = self.root(extra_key) if start is self.top else start
        nodes, position = list[RadixNode](), 0
        while position < len(key):
            child = node.children.get(key[position : position + self.page_bytes])
            if child is None:
                break
            if not key.startswith(child.ids, position):
                return Descent(nodes, position, child, self._common(child.ids, key, position))
            nodes.append(child)
            position += len(child.ids)
            node = child
        return Descent(nodes, position, None, 0)

    def add(self, parent: RadixNode, ids: bytes, slots: bytes, extra_key: str | None) -> RadixNode:
        """A new edge on the device."""
        if parent is self.top:
            if extra_key not in self._roots:
                self._roots[extra_key] = RadixRoot(extra_key, serial=next(self._serials))
            parent = self._roots[extra_key]
        node = RadixNode(ids, slots, parent, serial=next(self._serials))
        parent.children[ids[: self.page_bytes]] = node
        parent.num_on_device += 1
        return node

    def split(self, node: RadixNode, num_bytes: int) -> RadixNode:
        """Cut an edge; the node keeps the lower part and stands for the same prefix as before.

        Args:
            node: The edge.
            num_bytes: Of the upper part.

        Returns:
            The upper part.
        """
        parent = node.parent
        assert parent is not None, "a root has no tokens to cut"
        upper = RadixNode(
            node.ids[:num_bytes],
            None if node.slots is None else node.slots[:num_bytes],
            parent,
            serial=next(self._serials),
        )
        upper.num_locks, upper.num_uses, upper.priority = node.num_locks, node.num_uses, node.priority
        upper.last_used, upper.created = node.last_used, node.created
        upper.num_on_device = int(node.slots is not None)
        parent.children[node.ids[: self.page_bytes]] = upper
        node.ids = node.ids[num_bytes:]
        node.slots = None if node.slots is None else node.slots[num_bytes:]
        if node.host_slots is not None:
            upper.host_slots, node.host_slots = node.host_slots[:num_bytes], node.host_slots[num_bytes:]
        upper.children[node.ids[: self.page_bytes]] = node
        node.parent = upper
        return upper

    def remove(self, node: RadixNode) -> RadixNode:
        """Take out an edge with nothing below; its parent."""
        parent = node.parent
        assert parent is not None, "a root is removed with its last edge"
        assert not node.children, "what lies below is removed first"
        del parent.children[node.ids[: self.page_bytes]]
        parent.num_on_device -= node.slots is not None
        node.parent = None
        if isinstance(parent, RadixRoot) and not parent.children:
            del self._roots[parent.extra_key]
        return parent

    def clear(self) -> None:
        """Remove all edges."""
        for node in list(self.nodes()):
            node.parent = None
        self._roots.clear()

    def nodes(self, below: RadixNode | None = None) -> Iterator[RadixNode]:
        """Every edge, or those at and below one; a parent comes before its children."""
        stack: list[RadixNode] = [*self._roots.values()] if below is None else [below]
        while stack:
            node = stack.pop()
            if node.ids:
                yield node
            stack.extend(node.children.values())

    def _common(self, edge: bytes, key: bytes, position: int) -> int:
        size = min(len(edge), len(key) - position)
        differs = as_array(edge[:size]) != as_array(key[position : position + size])
        first = int(differs.argmax())
        num_bytes = first * NUM_BYTES if differs[first] else size
        return num_bytes // self.page_bytes * self.page_bytes
