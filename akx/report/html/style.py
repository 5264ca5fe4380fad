"""How a report page looks: in light and in dark, on a phone, and on paper. Text only; nothing is fetched."""

from __future__ import annotations

from akx.report.html.elements import Markup

__all__ = ["STYLE"]

# Colours of the series: told apart by people who see few colours, and readable on either background.
STYLE = Markup("""
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #59636e; --rule: #d5dae0; --panel: #f6f8fa;
  --link: #0757ba; --c0: #0063b1; --c1: #b35900; --c2: #00735c; --c3: #a1256f; --c4: #c0392b; --c5: #5b5fc7;
  --c6: #6b6f00; --c7: #5f6b7a; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --ink: #e6e9ed; --soft: #9aa5b1; --rule: #343b44; --panel: #1d2127; --link: #7db4ff;
    --c0: #58a6ff; --c1: #f0a050; --c2: #3fc9a4; --c3: #f07cc0; --c4: #ff7b6b; --c5: #a5a8ff; --c6: #cdd14a;
    --c7: #a9b4c0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem clamp(0.8rem, 4vw, 2rem) 3rem; }
h1, h2, h3, h4, p, dd, summary { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 0.4rem; padding-top: 0.6rem; border-top: 2px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 0.4rem; }
h4 { font-size: 0.95rem; margin: 1.2rem 0 0.3rem; }
p { max-width: 46rem; margin: 0.4rem 0; }
a { color: var(--link); }
header p, footer, section > p { color: var(--soft); }
article { background: var(--panel); border: 1px solid var(--rule); border-radius: 0.5rem; margin: 1.2rem 0;
  padding: 0.2rem clamp(0.7rem, 3vw, 1.2rem) 1rem; }
.scroll { overflow-x: auto; margin: 0.5rem 0; }
table { border-collapse: collapse; font-size: 0.88rem; }
th, td { text-align: left; padding: 0.25rem 0.8rem 0.25rem 0; white-space: nowrap; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.wide { white-space: normal; min-width: 16rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) minmax(0, 1fr); gap: 0.2rem 1rem; margin: 0.5rem 0;
  font-size: 0.92rem; }
dt { color: var(--soft); }
dd { margin: 0; }
figure { margin: 0.6rem 0; }
details { margin: 0.6rem 0; }
summary { cursor: pointer; color: var(--link); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; margin: 0; padding: 0;
  font-size: 0.85rem; }
.key { display: inline-block; width: 1.1rem; height: 0.6rem; margin-right: 0.4rem; background: currentColor; }
.dashed { height: 0; background: none; border-top: 2px dashed currentColor; vertical-align: middle; }
.key.c0 { color: var(--c0); } .key.c1 { color: var(--c1); } .key.c2 { color: var(--c2); } .key.c3 { color: var(--c3); }
.key.c4 { color: var(--c4); } .key.c5 { color: var(--c5); } .key.c6 { color: var(--c6); } .key.c7 { color: var(--c7); }
.chart { display: block; width: 100%; min-width: 30rem; max-width: 46rem; height: auto; color: var(--ink); }
.chart text { fill: currentColor; font-size: 12.5px; font-family: inherit; }
.chart .n { font-size: 11px; }
.chart .label { fill: var(--soft); }
.chart .grid { stroke: var(--rule); stroke-width: 1; }
.chart .axis { stroke: currentColor; stroke-width: 1; }
.chart .reference { stroke: currentColor; stroke-width: 1.5; stroke-dasharray: 6 4; }
.chart .line { fill: none; stroke-width: 2; }
.chart .dash { stroke-dasharray: 7 5; }
.chart .dot { stroke: var(--ground); stroke-width: 1; }
.bar.c0, .dot.c0 { fill: var(--c0); } .bar.c1, .dot.c1 { fill: var(--c1); } .bar.c2, .dot.c2 { fill: var(--c2); }
.bar.c3, .dot.c3 { fill: var(--c3); } .bar.c4, .dot.c4 { fill: var(--c4); } .bar.c5, .dot.c5 { fill: var(--c5); }
.bar.c6, .dot.c6 { fill: var(--c6); } .bar.c7, .dot.c7 { fill: var(--c7); }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.line.c3 { stroke: var(--c3); } .line.c4 { stroke: var(--c4); } .line.c5 { stroke: var(--c5); }
.line.c6 { stroke: var(--c6); } .line.c7 { stroke: var(--c7); }
@media print { article { break-inside: avoid; } .scroll { overflow: visible; } }
""")
