// The suite `node-24`: runs the unit tests, and end-to-end tests of the daemon on containerd 2.1, with the oldest Node
// that the shim supports. Everything else runs with the Node that package-lock.json pins. `node-24.mjs COMMAND...` runs
// a command with Node 24 first in PATH.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
// A separate lockfile, because npm installs only one `bin` of a name.
const folder = join(root, '.ci/node-24');
const bin = join(folder, 'node_modules/.bin');
// Not npx, which puts the pinned Node first again.
const vitest = ['node', 'node_modules/vitest/vitest.mjs', 'run', '--project'];
const inNode = ['node', 'dist/tools/node.js', '--containerd', '2.1', '--'];
const e2e = ['resize/resize', 'restart/upgrade', 'restart/journal', 'volumes/volumes'].map(
  (name) => `test/e2e/${name}.test.ts`,
);
const tests = [
  ['unit tests', [...vitest, 'unit']],
  ['end-to-end tests', [...inNode, ...vitest, 'e2e', ...e2e]],
];

const say = (text) => process.stdout.write(`node 24: ${text}\n`);

const env = { ...process.env, PATH: [bin, process.env.PATH].join(delimiter) };

/** Returns whether the command ended with exit code 0. */
function run([command, ...args], cwd = root) {
  return spawnSync(command, args, { cwd, env, stdio: ['ignore', 'inherit', 'inherit'] }).status === 0;
}

/** Runs tests. Without `isShown`, prints their output at their end. Returns whether they passed. */
async function runTests(name, [command, ...args], isShown) {
  say(`${name} ...`);
  const output = [];
  const tests = spawn(command, args, {
    cwd: root,
    env,
    stdio: ['ignore', ...Array(2).fill(isShown ? 'inherit' : 'pipe')],
  });
  for (const stream of [tests.stdout, tests.stderr]) stream?.on('data', (data) => output.push(data));
  const [code] = await once(tests, 'close');
  process.stdout.write(Buffer.concat(output));
  say(`${name}: ${code === 0 ? 'ok' : 'FAILED'}`);
  return code === 0;
}

if (!run(['npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], folder)) process.exit(1);
const command = process.argv.slice(2);
if (command.length > 0) process.exit(run(command) ? 0 : 1);
// Runs both at the same time, because a node uses one processor, and so do the unit tests.
const passed = (await Promise.all(tests.map(([name, test], index) => runTests(name, test, index === 0)))).filter(
  Boolean,
).length;
say(`${passed} passed, ${tests.length - passed} failed`);
process.exitCode = passed === tests.length ? 0 : 1;
