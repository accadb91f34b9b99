// Installs the locked dependencies and builds, which every command needs before it starts. Quick if nothing changed.
// The Node that runs this may be older than the one that the lockfile pins and that everything else runs on, so this
// file uses no syntax and no function that is newer than Node 18. npm puts node_modules/.bin with the pinned Node first
// in PATH. A shell caches where it found `node` before, so the commands in package.json continue with `env node`, which
// searches again.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
/** The oldest Node that the programs run on: `engines` in package.json. */
const OLDEST = 24;
/**
 * npm waits for an unresponsive registry or name server for longer than a user or CI waits for the whole command.
 * Therefore each attempt has a time limit, and the next one continues with the files that are already in npm's cache.
 */
const INSTALL_ATTEMPTS = 3;
const INSTALL_SECONDS = Number(process.env.CRI_RESIZE_SHIM_INSTALL_SECONDS ?? 300);
const quiet = process.argv.includes('--quiet');
const warn = (text) => process.stderr.write(`setup: ${text}\n`);
const say = (text) => quiet || warn(text);

function run(what, command, args) {
  const result = spawnSync(command, args, { cwd: root, stdio: ['ignore', quiet ? 'ignore' : 2, 2] });
  if (result.status !== 0)
    fail(`${what} failed: ${command} ${args.join(' ')}: ${result.error?.message ?? `exit code ${result.status}`}`);
}

function install() {
  if (!(INSTALL_SECONDS > 0))
    fail(`CRI_RESIZE_SHIM_INSTALL_SECONDS: expected seconds, got ${process.env.CRI_RESIZE_SHIM_INSTALL_SECONDS}`);
  // Without engine-strict, because npm may run on an older Node here, and what it installs runs on the pinned one.
  const args = ['ci', '--ignore-scripts', '--include=optional', '--engine-strict=false', '--prefer-offline'];
  args.push('--no-audit', '--no-fund', '--loglevel=error', '--fetch-timeout=60000');
  const options = { cwd: root, stdio: ['ignore', quiet ? 'ignore' : 2, 2], timeout: INSTALL_SECONDS * 1000 };
  for (let attempt = 1; attempt <= INSTALL_ATTEMPTS; attempt++) {
    const { status, error } = spawnSync('npm', args, { ...options, killSignal: 'SIGKILL' });
    if (status === 0) return;
    const reason =
      error?.code === 'ETIMEDOUT'
        ? `not finished after ${INSTALL_SECONDS} s`
        : (error?.message ?? `exit code ${status}`);
    warn(`installing dependencies: attempt ${attempt} of ${INSTALL_ATTEMPTS}: npm ci: ${reason}`);
  }
  fail('installing dependencies failed: check that this machine reaches its npm registry (npm config get registry)');
}

function fail(text) {
  warn(text.trim());
  process.exit(1);
}

/**
 * The names and contents of everything that a step reads. The step runs again when it changes. The version of this Node
 * is not part of it, because the first and the second run may have different ones.
 */
function fingerprint(paths) {
  const hash = createHash('sha256').update(process.arch);
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

/**
 * Returns the pinned Node, or the one that runs this if npm has none for the architecture. Exits with a message if it
 * is too old.
 */
function nodeProgram() {
  const pinned = join(root, 'node_modules/.bin/node');
  const program = existsSync(pinned) ? pinned : process.execPath;
  const { status, stdout, stderr } = spawnSync(program, ['--version'], { encoding: 'utf8' });
  const remedy = /libatomic/.test(stderr) ? ': install libatomic1' : '';
  if (status !== 0) fail(`${program} does not start${remedy}: ${stderr}`);
  const major = Number(/^v(\d+)/.exec(stdout)?.[1]);
  if (major < OLDEST) fail(`${program} is Node ${stdout.trim()}: install Node ${OLDEST} or later`);
  return program;
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

once('installing dependencies', 'node_modules/.setup-stamp', fingerprint(['package-lock.json']), install);
const node = nodeProgram();
once(
  'building',
  'dist/.setup-stamp',
  fingerprint(['package-lock.json', 'package.json', 'src', 'test', 'bench', 'demo', 'tools', 'proto']),
  () => run('building', node, ['tools/build.mjs']),
);
