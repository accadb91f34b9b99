// What every command needs before it can start: the locked dependencies and a current build. Quick when nothing changed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const quiet = process.argv.includes('--quiet');
const say = (text) => quiet || process.stderr.write(`setup: ${text}\n`);

function run(what, command, args) {
  const result = spawnSync(command, args, { cwd: root, stdio: ['ignore', quiet ? 'ignore' : 2, 2] });
  if (result.status !== 0) {
    process.stderr.write(
      `setup: ${what} failed: ${command} ${args.join(' ')}: ${result.error?.message ?? `exit code ${result.status}`}\n`,
    );
    process.exit(1);
  }
}

/** The names and contents of everything that a step reads: the step runs again when it changes. */
function fingerprint(paths) {
  const hash = createHash('sha256').update(process.version);
  const visit = (path) => {
    for (const entry of readdirSync(path, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const child = join(path, entry.name);
      if (entry.isDirectory()) visit(child);
      else hash.update(child).update(readFileSync(child));
    }
  };
  for (const path of paths.map((name) => join(root, name)).filter(existsSync)) {
    try {
      visit(path);
    } catch (error) {
      if (error.code !== 'ENOTDIR') throw error;
      hash.update(path).update(readFileSync(path));
    }
  }
  return hash.digest('hex');
}

function once(what, stamp, print, action) {
  const file = join(root, stamp);
  if (existsSync(file) && readFileSync(file, 'utf8') === print) return;
  const start = Date.now();
  say(`${what} ...`);
  action();
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, print);
  say(`${what}: done in ${((Date.now() - start) / 1000).toFixed(1)} s`);
}

once('installing dependencies', 'node_modules/.setup-stamp', fingerprint(['package-lock.json']), () =>
  run('installing dependencies', 'npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']),
);
once(
  'building',
  'dist/.setup-stamp',
  fingerprint(['package-lock.json', 'package.json', 'src', 'test', 'bench', 'demo', 'tools', 'proto']),
  () => run('building', process.execPath, ['tools/build.mjs']),
);
