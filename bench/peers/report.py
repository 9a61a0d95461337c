"""report.py - the page of `bench/compare all`: one file with a map of ratios and plots of time against size."""
import html
import math
import time

COLORS = {"choir": "#2463c5", "before": "#7fa6e0", "openmpi": "#e07b00", "mpich": "#b0319a", "gloo": "#808895", "limit": "#1f9d61"}
TITLES = {"choir": "Choir", "before": "Choir before the change", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "gloo", "limit": "limit of memory"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 300, 54, 12, 12, 34

STYLE = """
:root{--ink:#1b2130;--soft:#616b7d;--line:#e1e5ec;--back:#fff;--card:#f7f8fb}
@media(prefers-color-scheme:dark){:root{--ink:#e7eaf1;--soft:#9aa5b8;--line:#2d3545;--back:#11151d;--card:#191f2b}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;color:var(--ink);background:var(--back);max-width:1480px;margin:2.2rem auto;padding:0 1.6rem}
h1{font-size:1.9rem;font-weight:680;letter-spacing:-.02em;margin:0}h2{margin:2.4rem 0 .7rem;font-size:1.25rem}h3{margin:0 0 .3rem;font-size:1rem}
p{color:var(--soft);margin:.3rem 0 .8rem;max-width:62rem}.loud{background:#b3261e;color:#fff;padding:.7rem 1rem;border-radius:8px;font-weight:600}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(410px,1fr));gap:1.1rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:.9rem 1rem}
svg{width:100%;display:block}svg text{font-size:11px;fill:var(--soft)}.rule{stroke:var(--line)}
.legend{display:flex;gap:1.2rem;flex-wrap:wrap;margin:.6rem 0 1rem}.legend i{display:inline-block;width:22px;height:0;border-top:3px solid;vertical-align:middle;margin-right:.4rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}.map td{min-width:3.6rem;text-align:center;padding:.28rem .3rem;font-size:.86rem;border:2px solid var(--back);border-radius:6px;color:#10151f}
.map th{font-weight:600;color:var(--soft);padding:.2rem .7rem .2rem 0;text-align:left;font-size:.86rem}.map thead th{text-align:center;padding:.2rem}
details{margin-top:.5rem;color:var(--soft)}summary{cursor:pointer;font-size:.85rem}.figures td,.figures th{padding:.12rem .5rem;text-align:right;font-size:.78rem;border-bottom:1px solid var(--line)}
.scroll{overflow-x:auto}
"""


def short(nbytes):
    for unit, shift in (("M", 20), ("K", 10)):
        if nbytes >= 1 << shift and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift}{unit}"
    return str(nbytes)


def short_time(us):
    if us >= 1e6:
        return f"{us / 1e6:g} s"
    return f"{us / 1e3:g} ms" if us >= 1e3 else f"{us:g} µs"


def figure(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


# --- the map -----------------------------------------------------------------------------------------

def shade(ratio):
    """Green where Choir is faster, red where it is slower, by powers of two; equal is pale."""
    depth = min(1.0, abs(math.log2(max(ratio, 1e-6))) / 3)
    light, strong = ((214, 240, 222), (46, 160, 92)) if ratio <= 1 else ((253, 226, 220), (218, 72, 52))
    return "#" + "".join(f"{round(a + (b - a) * depth):02x}" for a, b in zip(light, strong))


def cell(row):
    if row is None or not row["best"]:
        return "<td></td>"
    best = row["best"]
    ratio = best["ratio"]
    told = (f"{row['op']}, {row['ranks']} ranks, {short(row['bytes'])}: {figure(ratio['p50'])} of {TITLES[best['name']]}'s time "
            f"({figure(ratio['p10'])} to {figure(ratio['p90'])})")
    return f"<td style='background:{shade(ratio['p50'])}' title='{html.escape(told, quote=True)}'>{figure(ratio['p50'])}</td>"


def ratio_map(rows):
    sizes = sorted({row["bytes"] for row in rows if row["bytes"]})
    kinds = list(dict.fromkeys((row["op"], row["ranks"]) for row in rows if row["bytes"]))
    at = {(row["op"], row["ranks"], row["bytes"]): row for row in rows}
    lines = ["<div class='scroll'><table class='map'><thead><tr><th></th>" + "".join(f"<th>{short(s)}</th>" for s in sizes) + "</tr></thead>"]
    for op, ranks in kinds:
        lines.append(f"<tr><th>{op}, {ranks} ranks</th>" + "".join(cell(at.get((op, ranks, s))) for s in sizes) + "</tr>")
    for row in (row for row in rows if not row["bytes"]):
        lines.append(f"<tr><th>{row['op']}, {row['ranks']} ranks</th>{cell(row)}</tr>")
    return "\n".join(lines) + "</table></div>"


# --- plots -------------------------------------------------------------------------------------------

class Plot:
    def __init__(self, rows):
        self.rows = rows
        times = [us for row in rows for spread in row["us"].values() for us in (spread["p10"], spread["p90"])]
        self.low, self.high = math.floor(math.log10(max(min(times), 1e-3))), math.ceil(math.log10(max(times)))
        self.high = max(self.high, self.low + 1)
        self.first, self.last = math.log2(rows[0]["bytes"]), math.log2(rows[-1]["bytes"])

    def x(self, nbytes):
        return LEFT + (math.log2(nbytes) - self.first) / max(self.last - self.first, 1) * (WIDTH - LEFT - RIGHT)

    def y(self, us):
        return HEIGHT - BOTTOM - (math.log10(max(us, 1e-3)) - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def axes(self):
        out = []
        for power in range(self.low, self.high + 1):
            y = self.y(10.0 ** power)
            out.append(f"<line class='rule' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}'/>"
                       f"<text x='{LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{short_time(10.0 ** power)}</text>")
        every = len(self.rows) // 8 + 1
        for row in self.rows[::every]:
            out.append(f"<text x='{self.x(row['bytes']):.1f}' y='{HEIGHT - BOTTOM + 18}' text-anchor='middle'>{short(row['bytes'])}</text>")
        return out

    def curve(self, name):
        points = [(row["bytes"], row["us"][name]) for row in self.rows if name in row["us"]]
        if not points:
            return []
        color, ours = COLORS[name], name == "choir"
        band = [f"{self.x(b):.1f},{self.y(s['p10']):.1f}" for b, s in points] + [f"{self.x(b):.1f},{self.y(s['p90']):.1f}" for b, s in reversed(points)]
        line = " ".join(f"{self.x(b):.1f},{self.y(s['p50']):.1f}" for b, s in points)
        out = [f"<polygon points='{' '.join(band)}' fill='{color}' opacity='.13'/>",
               f"<polyline points='{line}' fill='none' stroke='{color}' stroke-width='{3 if ours else 1.8}' stroke-linejoin='round'"
               + (" stroke-dasharray='5 4'" if name == "limit" else "") + "/>"]
        for b, s in points:
            told = f"{TITLES[name]}, {short(b)}: {figure(s['p50'])} µs ({figure(s['p10'])} to {figure(s['p90'])})"
            out.append(f"<circle cx='{self.x(b):.1f}' cy='{self.y(s['p50']):.1f}' r='{3.4 if ours else 2.4}' fill='{color}'><title>{html.escape(told)}</title></circle>")
        return out

    def draw(self, names):
        parts = self.axes()
        for name in [n for n in names if n != "choir"] + ["choir"]:  # ours on top
            parts += self.curve(name)
        return f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>" + "\n".join(parts) + "</svg>"


def bars(row, names):
    """An operation without sizes."""
    there = [n for n in names if n in row["us"]]
    times = {n: row["us"][n]["p50"] for n in there}
    low, high = math.log10(min(times.values()) / 3), math.log10(max(times.values()) * 1.2)
    parts = []
    for i, name in enumerate(there):
        y, length = 16 + i * 38, (math.log10(times[name]) - low) / (high - low) * (WIDTH - 190)
        parts.append(f"<text x='96' y='{y + 15}' text-anchor='end'>{TITLES[name]}</text>"
                     f"<rect x='104' y='{y}' width='{length:.1f}' height='22' rx='4' fill='{COLORS[name]}'/>"
                     f"<text x='{110 + length:.1f}' y='{y + 15}'>{figure(times[name])} µs</text>")
    return f"<svg viewBox='0 0 {WIDTH} {24 + 38 * len(there)}' role='img'>" + "".join(parts) + "</svg>"


def figures(rows, names):
    head = "<tr><th>size</th>" + "".join(f"<th>{TITLES[n]}, µs</th>" + ("" if n == "choir" else "<th>ratio</th>") for n in names) + "</tr>"
    lines = []
    for row in rows:
        cells = [f"<td>{short(row['bytes'])}</td>"]
        for name in names:
            cells.append(f"<td>{figure(row['us'][name]['p50'])}</td>" if name in row["us"] else "<td>-</td>")
            if name != "choir":
                ratio = row["ratio"].get(name)
                cells.append(f"<td>{figure(ratio['p50'])} ({figure(ratio['p10'])}-{figure(ratio['p90'])})</td>" if ratio else "<td>-</td>")
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return f"<details><summary>figures, with Choir's time over theirs (10-90 %)</summary><div class='scroll'><table class='figures'>{head}{''.join(lines)}</table></div></details>"


def card(op, rows, names):
    sized = [row for row in rows if row["bytes"]]
    drawing = Plot(sized).draw(names) if sized else bars(rows[0], names)
    return f"<div class='card'><h3>{op}</h3>{drawing}{figures(rows, names)}</div>"


# --- the page ----------------------------------------------------------------------------------------

def write_report(path, rows, manner, blocks, seconds):
    names = [name for name in COLORS if any(name in row["us"] for row in rows)]
    machine = rows[-1]["machine"]
    others = max(row["machine"]["others_busy"] for row in rows)
    wrong = sorted({name for row in rows for name, count in row["wrong"].items() if count})
    out = ["<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
           f"<title>Choir beside its peers</title><style>{STYLE}</style></head><body>",
           "<h1>Choir beside its peers</h1>",
           f"<p>{html.escape(machine['cpu'])}, {machine['processors']} processors. {time.strftime('%Y-%m-%d %H:%M')}, {seconds:.0f} s. "
           f"Elements are f32, inputs {'rewritten before every round' if manner.fresh else 'not rewritten between rounds'}; a round starts with a barrier and costs "
           f"what its slowest rank took{', the barrier included' if manner.whole else ''}. Contenders took turns in {blocks} blocks of one run and were bound to processors alike; shown are medians over blocks "
           "and the band of the middle 80&nbsp;%. Every contender's results were verified.</p>"]
    if wrong:
        out.append(f"<p class='loud'>Wrong results: {', '.join(wrong)}</p>")
    if not all(row["machine"]["quiet"] for row in rows):
        out.append(f"<p class='loud'>The machine was not quiet: others kept up to {others:.2f} processors busy. These figures are not to be trusted.</p>")
    out.append("<h2>Choir's time over that of the fastest peer</h2><p>Below 1 (green) Choir is faster. The limit of memory is not a peer.</p>")
    out.append(ratio_map(rows))
    for ranks in dict.fromkeys(row["ranks"] for row in rows):
        out.append(f"<h2>{ranks} ranks: time against size</h2><div class='legend'>" + "".join(
            f"<span><i style='border-color:{COLORS[n]}{';border-top-style:dashed' if n == 'limit' else ''}'></i>{TITLES[n]}</span>" for n in names) + "</div><div class='grid'>")
        mine = [row for row in rows if row["ranks"] == ranks]
        for op in dict.fromkeys(row["op"] for row in mine):
            out.append(card(op, [row for row in mine if row["op"] == op], names))
        out.append("</div>")
    path.write_text("\n".join(out) + "\n</body></html>\n")
