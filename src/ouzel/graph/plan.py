"""Memory plan: which slot of the arena each value of a graph lives in.

A slot belongs to one row symbol and is as wide as its widest value; its size is known when a step's row counts are. Values
share a slot when their lives do not overlap; an operation that may work in place takes over the slot of an input that dies
with it. Inputs live in the caller's arrays and have no slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ouzel.graph.graph import Graph, Node
from ouzel.graph.ops import OPS, operand_names


@dataclass(frozen=True)
class Slot:
    """Row symbol and width in floats of one region of the arena."""

    rows: str
    width: int


@dataclass(frozen=True)
class MemoryPlan:
    """`slot_of[value]` indexes `slots`; input values are not in it."""

    slots: tuple[Slot, ...]
    slot_of: Mapping[str, int]

    def bytes(self, counts: Mapping[str, int]) -> int:
        """Size of the arena for the given row counts."""
        return sum(4 * slot.width * counts[slot.rows] for slot in self.slots)


def plan_memory(graph: Graph) -> MemoryPlan:
    """Assigns slots in one walk over the nodes, first fit among the free slots of the same row symbol."""
    last = _last_use(graph)
    slots: list[Slot] = []
    free: list[int] = []
    slot_of: dict[str, int] = {}
    for at, node in enumerate(graph.nodes):
        dying = [name for name in dict.fromkeys(node.inputs) if name in slot_of and last[name] == at]
        taken = _taken_over(graph, node, dying)
        if taken is not None:
            slot_of[node.output] = slot_of[taken]
            dying.remove(taken)
        else:
            slot_of[node.output] = _find_slot(graph, node.output, slots, free)
        free.extend(slot_of[name] for name in dying)
        if last.get(node.output, at) == at and node.output not in graph.outputs:
            free.append(slot_of[node.output])
    return MemoryPlan(tuple(slots), slot_of)


def _last_use(graph: Graph) -> dict[str, int]:
    last = {name: at for at, node in enumerate(graph.nodes) for name in node.inputs}
    return last | {name: len(graph.nodes) for name in graph.outputs}


def _taken_over(graph: Graph, node: Node, dying: list[str]) -> str | None:
    form = OPS[node.op]
    names = dict(zip(operand_names(form, len(node.inputs), form.inputs), node.inputs))
    name = names.get(form.in_place or "")
    # An operand that is read twice by the node cannot be overwritten while it is still read.
    if name is None or name not in dying or node.inputs.count(name) > 1:
        return None
    return name if graph.values[name].width == graph.values[node.output].width else None


def _find_slot(graph: Graph, name: str, slots: list[Slot], free: list[int]) -> int:
    value = graph.values[name]
    candidates = [i for i in free if slots[i].rows == value.rows]
    if not candidates:
        slots.append(Slot(value.rows, value.width))
        return len(slots) - 1
    # The free slot whose width is nearest: growing one slot beats opening another.
    best = min(candidates, key=lambda i: (abs(slots[i].width - value.width), i))
    slots[best] = Slot(value.rows, max(slots[best].width, value.width))
    free.remove(best)
    return best
