"""An actor graph as lines and as SVG, before a run or with the totals of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from xml.sax.saxutils import escape

from microagents.journal.messages import Account
from microagents.runs.driver.graph import GraphRole, RoleGraph
from microagents.runs.words.summary import in_flight_text

WIDTH, HEIGHT = 168, 46
"""Size of a role's box, in pixels."""
ACROSS, DOWN = 330, 92
"""Distance between two columns, and between two rows."""
MARGIN = 28
LINE, BELOW = 13, 23
"""Height of a line of a label; distance from the last line in a box to the first below."""
LETTER = 6.5
"""Greatest mean width of a letter of a small label, in pixels."""
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 11px; fill: #57606a }
  rect { fill: #ffffff; stroke: #57606a } .asks rect { stroke: #0969da; stroke-width: 2 } .driver rect { stroke-dasharray: 4 3 }
  path { fill: none; stroke: #8c959f } marker path { fill: #8c959f; stroke: none } .back { background: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9ea7b3 } rect { fill: #161b22; stroke: #9ea7b3 } .asks rect { stroke: #58a6ff }
  }
"""
MARKER = """<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0 L8 4 L0 8 z"/></marker></defs>"""
"""The head of an arrow."""


def lines_of(graph: RoleGraph) -> Iterator[str]:
    """Describe each role, and the messages that it sends by their receivers."""
    yield f"{graph.strategy} for {graph.task}"
    for role in graph.roles:
        yield f"{_title(role)}: {role.subject}" if role.subject else _title(role)
        for receiver, names in _sent(graph, role.name).items():
            yield f"  -> {receiver}: {', '.join(names)}"
    for process, replicas in graph.placement.items():
        yield f"in {process}: {', '.join(replicas)}"


def totals_by_role(graph: RoleGraph, account: Account, unit: str) -> dict[str, str]:
    """List the facts of a run's account about each role: a line for its box and, while it works, one below."""
    found = {
        graph.roles[0].name: f"{account.steps:,} {unit}s",
        "Voter": f"{account.decided:,} decided",
        "RedFlagger": f"{sum(account.flagged.values()):,} flagged",
        "Keeper": f"{account.calls:,} calls",
        **{each.name: in_flight_text(account) for each in graph.roles if each.asks_models},
    }
    for role, count in account.deaths.items():
        found[role] = ", ".join(filter(None, (found.get(role), f"{count:,} died")))
    return found | {role: f"{found.get(role, '')}\n{load}" for role, load in account.load_by_role.items()}


def svg_of(graph: RoleGraph, totals: Mapping[str, str] | None = None) -> str:
    """Draw roles in columns by their distance from the conductor; those of the driver stand in the last row, and the processes below.

    Args:
        graph: the graph.
        totals: words about a run by the name of the role: the first line stands in its box, the others below.
    """
    places = _places(graph)
    width = max(x for x, _ in places.values()) + WIDTH + MARGIN
    below = max(y for _, y in places.values()) + HEIGHT + 2 * MARGIN
    processes = list[str]()
    for process, replicas in graph.placement.items():
        lines = [process, *wrap(", ".join(replicas), int((width - 3 * MARGIN) / LETTER))]
        processes += _process(lines, below, width)
        below += LINE * len(lines) + BELOW
    title = escape(f"{graph.strategy} for {graph.task}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below}" width="{width}" height="{below}" role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        MARKER,
    ]
    labels: list[str] = []
    driver = {role.name for role in graph.roles if role.in_driver}
    for role in graph.roles:
        for receiver, names in _sent(graph, role.name).items():
            if receiver in driver:
                continue
            path, (x, y) = _path(places[role.name], places[receiver])
            parts.append(f'<path d="{path}" marker-end="url(#to)"/>')
            tall = y - LINE * (len(names) - 1) / 2
            labels += [
                f'<text class="small" x="{x:.0f}" y="{tall + LINE * line:.0f}" text-anchor="middle">{escape(name)}</text>'
                for line, name in enumerate(names)
            ]
    for role in graph.roles:
        x, y = places[role.name]
        kind = " ".join(["asks"] * role.asks_models + ["driver"] * role.in_driver)
        centre = x + WIDTH / 2
        to_it = sorted({each.name for each in graph.messages if each.receiver == role.name})
        if role.asks_models:
            note = "asks a model"
        elif role.in_driver:
            note = f"in the driver: {len(to_it)} messages"
        else:
            note = ""
        lines = (totals or {}).get(role.name, note).split("\n")
        tip = escape(" ".join([role.subject, *to_it]))
        parts += [
            f'<g class="{kind}"><title>{tip}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            f'<text x="{centre}" y="{y + (20 if lines[0] else 28)}" text-anchor="middle">{escape(_title(role))}</text>',
            *(
                f'<text class="small" x="{centre}" y="{y + 36 + BELOW * line}" text-anchor="middle">{escape(text)}</text>'
                for line, text in enumerate(lines)
            ),
            "</g>",
        ]
    return "\n".join([*parts, *labels, *processes, "</svg>"]) + "\n"


def _process(lines: Sequence[str], y: int, width: int) -> Iterator[str]:
    """Draw a process as a box with its name and its replicas."""
    height = LINE * (len(lines) + 1)
    yield f'<g class="process"><rect x="{MARGIN}" y="{y - LINE - 4}" width="{width - 2 * MARGIN}" height="{height}" rx="6"/>'
    for number, line in enumerate(lines):
        kind = ' class="small"' if number else ""
        yield f'<text{kind} x="{3 * MARGIN / 2}" y="{y + LINE * number}">{escape(line)}</text>'
    yield "</g>"


def _title(role: GraphRole) -> str:
    if role.replicas == 1:
        return role.name
    return f"{role.name} x {role.replicas}"


def _sent(graph: RoleGraph, sender: str) -> dict[str, list[str]]:
    """Name the messages of a role by receiver."""
    found = defaultdict[str, list[str]](list)
    for each in graph.messages:
        if each.sender == sender:
            found[each.receiver].append(each.name)
    return found


def _places(graph: RoleGraph) -> dict[str, tuple[int, int]]:
    """The left upper corner of each box."""
    columns = defaultdict[int, list[GraphRole]](list)
    driver = [role for role in graph.roles if role.in_driver]
    for role in graph.roles:
        if not role.in_driver:
            columns[role.distance].append(role)
    rows = max(map(len, columns.values()))
    places: dict[str, tuple[int, int]] = {}
    for column, distance in enumerate(sorted(columns)):
        top = (rows - len(columns[distance])) / 2
        for row, role in enumerate(columns[distance]):
            places[role.name] = MARGIN + column * ACROSS, 3 * MARGIN + round((row + top) * DOWN)
    for number, role in enumerate(driver):
        places[role.name] = MARGIN + number * ACROSS, 3 * MARGIN + rows * DOWN
    return places


def _path(sender: tuple[int, int], receiver: tuple[int, int]) -> tuple[str, tuple[float, float]]:
    """The curve of an edge, and the place of its label."""
    (x0, y0), (x1, y1) = sender, receiver
    if x1 - x0 > ACROSS:  # over the boxes between them
        left, right, top = x0 + 3 * WIDTH / 4, x1 + WIDTH / 2, -MARGIN
        return f"M{left} {y0} C{left} {top} {right} {top} {right} {y1}", ((left + right) / 2, MARGIN / 2 + LINE)
    if x1 > x0:
        bend = (ACROSS - WIDTH) / 2
        start, end = (x0 + WIDTH, y0 + HEIGHT / 2), (x1, y1 + HEIGHT / 2)
        curve = f"C{start[0] + bend} {start[1]} {end[0] - bend} {end[1]} {end[0]} {end[1]}"
        return f"M{start[0]} {start[1]} {curve}", ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 3)
    left, right = x1 + WIDTH / 3, x0 + 2 * WIDTH / 3  # back, or to itself: over the boxes
    return f"M{right} {y0} C{right} {y0 - DOWN / 2} {left} {y1 - DOWN / 2} {left} {y1}", ((left + right) / 2, y0 - 32)
