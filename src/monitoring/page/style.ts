/** The only style of the page; the Content-Security-Policy has its hash. Supports light and dark mode. */
export const style = `
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2024; --dim: #5b6570; --line: #d5dae0; --bad: #b42318;
  --pod: #1f5fbf; --c0: #b35900; --c1: #6b3fa0; --c2: #0f766e; --volume: #a21c5b; --use: #9aa5b1; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #14171a; --fg: #e6e9ec; --dim: #9aa5b1; --line: #343b42; --bad: #ff8a7a;
    --pod: #7fb0ff; --c0: #ffb066; --c1: #c9a5f7; --c2: #5fd0c5; --volume: #ff8fc0; --use: #5b6570; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 80rem; background: var(--bg); color: var(--fg); font: 0.95rem/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; margin: 0 0 0.5rem; }
p { margin: 0.3rem 0; } .dim { color: var(--dim); } .bad { color: var(--bad); }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
article { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.8rem; min-width: 0; }
dl { margin: 0; display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0.1rem 0.8rem; }
dd { margin: 0; text-align: right; } .bar { grid-column: 1 / -1; }
svg { display: block; width: 100%; } .bar svg { height: 0.5rem; margin-bottom: 0.4rem; }
.track { fill: var(--line); } .used { fill: var(--pod); } .volume .used { fill: var(--volume); } .full .used { fill: var(--bad); }
.timeline > svg { height: 9rem; margin: 0.5rem 0; border-bottom: 1px solid var(--line); border-left: 1px solid var(--line); }
path { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; } path.area { stroke: none; fill: var(--use); opacity: 0.5; }
.pod { stroke: var(--pod); } .c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
path.size { stroke: var(--volume); stroke-dasharray: 5 3; }
table { border-collapse: collapse; font-size: 0.85rem; } th, td { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid var(--line); }
ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: 0.85rem; }
li svg { display: inline-block; vertical-align: middle; width: 1.4rem; height: 0.6rem; margin: 0 0.3rem 0 0; border: 0; }
li rect.area { fill: var(--use); } ol { padding-left: 1.4rem; font-size: 0.85rem; } ol .dim { white-space: nowrap; }
`;
