// npm run check: types and lint, format, language, systemd units, Helm chart, import directions, unused exports. Runs
// all of them, the slowest first, so that one run shows every failure.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const bin = (name) => join(root, 'node_modules/.bin', name);
const checks = [
  // With types: `options` in .oxlintrc.json.
  ['types and lint', bin('oxlint'), []],
  ['chart', process.execPath, [join(root, 'dist/tools/chart.js')]],
  ['format', bin('biome'), ['check', '.']],
  ['language', process.execPath, [join(root, 'tools/check-language.mjs')]],
  ['units', process.execPath, [join(root, 'dist/tools/units.js')]],
  [
    'import directions',
    bin('depcruise'),
    ['src', 'test', 'bench', 'demo', 'tools', '--config', '.dependency-cruiser.cjs'],
  ],
  ['unused exports', bin('knip'), ['--include', 'exports,types', '--no-progress']],
];

/** Runs a check. Prints its output when it has ended, because another one runs at the same time. */
async function run([name, command, args]) {
  const start = Date.now();
  const output = [];
  const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => output.push(data));
  const [code] = await once(child, 'close');
  const time = `(${((Date.now() - start) / 1000).toFixed(1)} s)`;
  process.stdout.write(Buffer.concat(output));
  process.stdout.write(`check: ${name}: ${code === 0 ? 'ok' : 'FAILED'} ${time}\n`);
  return code === 0;
}

process.stdout.write(`check: ${checks.map(([name]) => name).join(', ')} ...\n`);
const queue = checks.values();
let passed = 0;
const worker = async () => {
  for (const check of queue) if (await run(check)) passed += 1;
};
// Each check uses one processor.
await Promise.all(Array.from({ length: Math.max(1, availableParallelism()) }, worker));
process.stdout.write(`check: ${passed} passed, ${checks.length - passed} failed\n`);
process.exit(passed === checks.length ? 0 : 1);
