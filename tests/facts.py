"""Facts of a report, made by hand, and pages taken apart."""

from __future__ import annotations

from html.parser import HTMLParser

from phpmq.spark.report import Anomaly, Damage, Facts, Queue, SizeClass

HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    '"><img src=x onerror=alert(2)>',
    "<!--",
    "\"quotes\" & 'quotes'",
    "{{ 7 * 7 }}",
    "طلبات",
]
#: What a page shows in the place of what would be invisible, or would turn the text around.
SHOWN = {"user\u202egpj.exe": "user\\u202egpj.exe", "": "(empty name)", None: "(not UTF-8)", "a\nb": "a\\nb"}

EMPTY = Facts(
    messages=0,
    captures=0,
    queue_count=0,
    totals=Queue(None, 0, 0, 0, 0, 0, 0, 0, 0, None, None, 0),
    queues=[],
    sizes=[],
    all_sizes={},
    anomaly_counts={},
    anomalies=[],
    damage_count=0,
    damaged_ranges=0,
    damaged_bytes=0,
    damage=[],
)

ORDERS = Queue(
    "orders", 4100, 100, 4000, 3700, 40, 60, 200, 1000, 0.25, 0.015, 5_000_000, [141, 2048, 65_537], [60, 3600, 90_061]
)
MAIL = Queue("mail", 30, 0, 50, 49, 0, 1, 0, 3, 0.06, 0.02, 987, [7, 8, 9], None)
UNUSED = Queue("unused", 5, 5, 0, 0, 0, 0, 0, 0, None, None, 0, [0, 0, 0], [1, 1, 1])

FACTS = Facts(
    messages=12_345_678,
    captures=3,
    queue_count=3,
    totals=Queue(None, 4135, 105, 4050, 3749, 40, 61, 200, 1003, 1003 / 4050, 61 / 4050, 5_000_987),
    queues=[ORDERS, MAIL, UNUSED],
    sizes=[
        SizeClass("orders", 8, 6000),
        SizeClass("orders", 11, 2000),
        SizeClass("mail", 3, 75),
        SizeClass("mail", 4, 5),
        SizeClass("unused", 0, 5),
    ],
    all_sizes={8: 6000, 11: 2000, 3: 75, 4: 5, 0: 5},
    anomaly_counts={
        ("acknowledged_without_dispatch", False): 1234,
        ("acknowledged_twice", False): 2,
        ("ttl_raised", False): 1,
        ("acknowledged_without_dispatch", True): 17,
        ("dispatched_after_end", True): 6,
    },
    anomalies=[
        Anomaly("acknowledged_without_dispatch", "orders", "id-1", "/captures/a.phpmq", 1_000_001, False),
        Anomaly("acknowledged_twice", "orders", "id-2", "/captures/a.phpmq", 1_000_002, False),
        Anomaly("ttl_raised", "mail", "id-3", "/captures/b.phpmq", 1_000_003, False),
        Anomaly("acknowledged_without_dispatch", "mail", "id-4", "/captures/b.phpmq", 1_000_004, True),
    ],
    damage_count=7,
    damaged_ranges=71,
    damaged_bytes=88_888,
    damage=[
        Damage("/captures/a.phpmq", "NOT_A_PACKET", 31, 55_555, 1_234_567),
        Damage("/captures/c.phpmq.gz", "COMPRESSED_DATA", 1, 4444, 7_654_321),
    ],
)


def hostile_facts() -> Facts:
    """Names that want to be more than text, wherever a name can be; the first queues are the ones in the charts."""
    names = [*HOSTILE, *SHOWN]
    return EMPTY._replace(
        queue_count=len(names),
        totals=ORDERS._replace(queue=None),
        queues=[ORDERS._replace(queue=name) for name in names],
        sizes=[SizeClass(name, 8, 3) for name in names],
        all_sizes={8: 3 * len(names)},
        anomaly_counts={("ttl_raised", False): len(names), ("ttl_raised", True): len(names)},
        anomalies=[
            Anomaly("ttl_raised", name or "", f"id {name or ''}", f"/path/{name or ''}", 5, suspect)
            for suspect in (False, True)
            for name in names
        ],
        damage_count=len(names),
        damaged_ranges=1,
        damaged_bytes=1,
        damage=[Damage(f"/path/{name or ''}", "TRUNCATED", 1, 1, 1) for name in names],
    )


class Page(HTMLParser):
    """A page as a browser reads it.

    Attributes:
        tags: the elements with their attributes, in order.
        text: what is to be read, and no script or style.
        tables: by the id of the caption: rows of cells, each of them text with common spaces.
        scripts: what runs.
        styles: the style sheets.
        data: by the id: scripts that do not run.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.tables: dict[str, list[list[str]]] = {}
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.data: dict[str, str] = {}
        self._row: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append((tag, attributes))
        self.text += " "
        if tag == "caption":
            self.tables[attributes["id"]] = []
        elif tag == "tr":
            self._row = []
            [*self.tables.values()][-1].append(self._row)
        elif tag in ("td", "th"):
            self._row.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self._row = []

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "style":
            self.styles.append(data)
        elif self.cdata_elem == "script":
            _, attributes = self.tags[-1]
            if "type" in attributes:
                self.data[attributes["id"]] = data
            else:
                self.scripts.append(data)
        else:
            self.text += data
            if self._row:
                self._row[-1] += data.strip().replace("\xa0", " ")

    def attributes(self, name: str) -> list[str]:
        """The values of an attribute, wherever it is."""
        return [attributes[name] for _, attributes in self.tags if name in attributes]
