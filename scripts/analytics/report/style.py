"""style — the style sheet of a report's page, light and dark

Owns: STYLE, the only style sheet.
Guarantees: it loads nothing; the scheme follows the reader's preference; the colours are Okabe and Ito's, with the
    lightness of each scheme.
See: M. Okabe, K. Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1e21; --soft: #5c636b; --line: #dfe3e7; --shade: #f5f7f8;
  --good: #0072b2; --late: #e69f00; --bad: #882255; --lost: #8a8f94; --band: #e69f0040; --odd: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --ink: #e8eaec; --soft: #a3abb3;
  --line: #343a40; --shade: #1e2226;
  --good: #56b4e9; --late: #f0c24b; --bad: #e08bb8; --lost: #7d858c; --band: #f0c24b33; --odd: #ff8c4a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 24px 20px 64px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 4px; } p { margin: 4px 0 12px;
  color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 16px 0; font-size: 14px; } a { color: var(--good); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0; }
dl div { background: var(--shade); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
dt { color: var(--soft); font-size: 13px; } dd { margin: 0; font-size: 22px; font-variant-numeric: tabular-nums; }
figure { margin: 12px 0; overflow-x: auto; }
svg { width: 100%; min-width: 640px; height: auto; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick, svg .axis, svg .value, svg .key { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--line); } svg .range { stroke: var(--lost); stroke-width: 3; }
svg .bar { stroke: var(--paper); stroke-width: 1; }
svg .good { fill: var(--good); } svg .late { fill: var(--late); } svg .bad { fill: var(--bad); }
svg .lost { fill: var(--lost); }
svg polyline { fill: none; stroke-width: 1.6; stroke-linejoin: round; } svg .attempts { stroke: var(--good); }
svg .usual { stroke: var(--lost); stroke-dasharray: 2 3; } svg .expected { stroke: var(--late);
  stroke-dasharray: 6 3; stroke-width: 2; }
svg .band { fill: var(--band); } svg .odd { fill: none; stroke: var(--odd); stroke-width: 2.5; }
.scroll { overflow: auto; max-height: 460px; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: 4px 10px; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: var(--shade); white-space: nowrap; }
td { min-width: 7em; max-width: 380px; overflow-wrap: anywhere; } td.n { min-width: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; color: var(--soft); font-size: 14px; margin: 6px 0; }
@media print { .scroll { max-height: none; } nav { display: none; } }
"""
