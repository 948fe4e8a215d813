"""RadixNode: an edge of the radix tree."""

NUM_BYTES = 4
"""Of a token id and of a slot in an edge: little-endian int32."""


class RadixNode:
    """An edge of the tree with its tokens, in whole pages.

    Tokens and slots are kept as bytes: these compare with one `memcmp`, and take a quarter of the memory of an array
    object for a short edge.

    Attributes:
        ids: Tokens on the way from the parent.
        slots: Their slots on the device; None where they are on the host only.
        host_slots: Their slots on the host; None where they are on the device only.
        parent: None for a root, and for a node that was removed.
        children: By the bytes of their first page.
        num_on_device: Children that are on the device.
        num_locks: How many matches at or below this node are in use.
        last_used: Tick of the last match, insert or unlock that passed here.
        created: Tick of its insert.
        num_uses: Matches that passed here.
        priority: The largest of the requests that inserted it.
        queues: Bits of the eviction queues that hold it.
        serial: Its number, for events.
    """

    __slots__ = (
        "children",
        "created",
        "host_slots",
        "ids",
        "last_used",
        "num_locks",
        "num_on_device",
        "num_uses",
        "parent",
        "priority",
        "queues",
        "serial",
        "slots",
    )

    def __init__(self, ids: bytes, slots: bytes | None, parent: "RadixNode | None", *, serial: int) -> None:
        self.ids = ids
        self.slots = slots
        self.host_slots: bytes | None = None
        self.parent = parent
        self.children: dict[bytes, RadixNode] = {}
        self.num_on_device = 0
        self.num_locks = 0
        self.last_used = 0
        self.created = 0
        self.num_uses = 0
        self.priority = 0
        self.queues = 0
        self.serial = serial

    @property
    def num_tokens(self) -> int:
        """Tokens of the edge."""
        return len(self.ids) // NUM_BYTES

    @property
    def is_device_leaf(self) -> bool:
        """Whether its tokens can be dropped from the device: none below is on it, and none is in use."""
        return self.slots is not None and self.num_on_device == 0 and self.num_locks == 0 and self.parent is not None

    @property
    def is_host_leaf(self) -> bool:
        """Whether it is on the host only, with nothing below, and not in use."""
        return self.slots is None and not self.children and self.num_locks == 0 and self.parent is not None
