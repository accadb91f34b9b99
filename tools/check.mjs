// npm run check: types, lint, format, language, systemd units, Helm chart, import directions, unused exports. Runs all of
// them, so that one run shows every failure.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const bin = (name) => join(root, 'node_modules/.bin', name);
const checks = [
  ['types', bin('tsc'), ['--noEmit']],
  ['lint', bin('eslint'), ['.']],
  ['format', bin('biome'), ['format', '.']],
  ['language', process.execPath, [join(root, 'tools/check-language.mjs')]],
  ['units', process.execPath, [join(root, 'dist/tools/units.js')]],
  ['chart', process.execPath, [join(root, 'dist/tools/chart.js')]],
  [
    'import directions',
    bin('depcruise'),
    ['src', 'test', 'bench', 'demo', 'tools', '--config', '.dependency-cruiser.cjs'],
  ],
  ['unused exports', bin('knip'), ['--include', 'exports,types', '--no-progress']],
];

let failed = 0;
for (const [name, command, args] of checks) {
  const start = Date.now();
  process.stdout.write(`check: ${name} ...\n`);
  const { status } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) failed += 1;
  process.stdout.write(
    `check: ${name}: ${status === 0 ? 'ok' : 'FAILED'} (${((Date.now() - start) / 1000).toFixed(1)} s)\n`,
  );
}
process.stdout.write(`check: ${checks.length - failed} passed, ${failed} failed\n`);
process.exit(failed === 0 ? 0 : 1);
