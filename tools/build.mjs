// Bundles the daemon and the repository's tools into one file each, with chunks that are loaded on demand. A daemon
// that reads one file starts much faster than one that resolves hundreds, and kubelet waits for the start. `build.mjs
// [FOLDER]`; default: dist/.
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const target = resolve(process.argv[2] ?? join(root, 'dist'));
const entries = {
  'cri-resize-shim': 'src/main.ts',
  resizectl: 'src/resizectl/main.ts',
  'cri-resize-shim-installer': 'src/install/rollout/main.ts',
  'tools/node': 'test/support/node/main.ts',
  'tools/demo': 'demo/main.ts',
  'tools/demo-inside': 'demo/inside.ts',
  'tools/bench': 'bench/main.ts',
  'tools/bench-fake': 'bench/fake/main.ts',
  'tools/bench-fake-pods': 'bench/fake/pods-main.ts',
  'tools/bench-inside': 'bench/inside/main.ts',
  'tools/bench-relay': 'bench/relay/main.ts',
  'tools/bench-first-status': 'bench/first-status/main.ts',
  'tools/bench-load-runtime': 'bench/load/runtime-main.ts',
  'tools/bench-load-inside': 'bench/load/inside-main.ts',
  'tools/record-load': 'bench/record/main.ts',
  'tools/record-load-inside': 'bench/record/inside.ts',
  'tools/bench-remount': 'bench/remount/main.ts',
  'tools/conformance': 'test/conformance/main.ts',
  'tools/test': 'test/runner/main.ts',
  'tools/matrix': 'test/matrix/main.ts',
  'tools/versions': 'test/versions/main.ts',
  'tools/nightly': 'test/nightly/main.ts',
  'tools/image': 'test/image/main.ts',
  'tools/kubelet': 'test/real-kubelet/main.ts',
  'tools/kubelet-inside': 'test/real-kubelet/table/inside.ts',
  'tools/vpa': 'test/real-kubelet/vpa/main.ts',
  'tools/vpa-inside': 'test/real-kubelet/vpa/inside.ts',
  'tools/crash': 'test/crash/main.ts',
  'tools/chaos': 'test/chaos/main.ts',
  'tools/stock-kernel': 'test/stock-kernel/main.ts',
  'tools/soak': 'test/soak/main.ts',
  'tools/chaos-preload': 'test/chaos/preload/main.ts',
  'tools/blocking': 'test/blocking/main.ts',
  'tools/blocking-preload': 'test/blocking/preload/main.ts',
  'tools/fuzz': 'test/fuzz/main.ts',
  'tools/limits': 'test/limits/main.ts',
  'tools/interop': 'test/interop/main.ts',
  'tools/k8s-e2e': 'test/k8s-e2e/main.ts',
  'tools/cri-integration': 'test/cri-integration/main.ts',
  'tools/watch': 'test/watch/main.ts',
  'tools/fake-kubelet': 'test/support/e2e/fake-kubelet.ts',
  'tools/units': 'test/systemd-units/main.ts',
  'tools/chart': 'test/deploy/chart.ts',
  'tools/package': 'tools/packaging/main.ts',
  'tools/release': 'tools/release/main.ts',
  'tools/signatures': 'tools/signatures/main.ts',
};

// The TypeScript types of the messages. Types only: the program reads src/**/*.proto.json.
const generator = join(root, 'node_modules/@grpc/proto-loader/build/bin/proto-loader-gen-types.js');
const generated = ['--grpcLib=@grpc/grpc-js', '--targetFileExtension=.d.ts', '--importFileExtension=.js'];
for (const [proto, ...conversions] of [
  ['runtime/v1/cri.proto', '--keepCase', '--defaults'],
  ['criresize/v1alpha1/resize.proto', '--keepCase', '--defaults', '--enums=String'],
]) {
  const options = [...conversions, ...generated, '-I', join(root, 'proto'), '-O', join(root, 'dist/protos')];
  execFileSync(process.execPath, [generator, ...options, '--', proto]);
}

// Builds in a separate folder and moves each file into place, so that a command that runs meanwhile finds complete
// files.
mkdirSync(join(target, 'tools'), { recursive: true });
const fresh = mkdtempSync(join(target, '.build-'));
const common = {
  absWorkingDir: root,
  outdir: fresh,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node24',
  sourcemap: 'linked',
  logLevel: 'warning',
  // CommonJS dependencies inside an ESM bundle need a require of their own.
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
  },
};
// Crash points (src/core/crash-points.ts) are disabled except in one bundle of the daemon for the crash tests.
const define = { __CRASH_POINTS__: 'false' };
// koffi loads its native part from its own package folder.
const external = ['koffi'];
const present = Object.entries(entries).filter(([, file]) => existsSync(join(root, file)));
const isTool = ([name]) => name.startsWith('tools/');
const tools = Object.fromEntries(present.filter(isTool));
const { 'cri-resize-shim': daemon, ...clients } = Object.fromEntries(present.filter((entry) => !isTool(entry)));
/** koffi in the single executable: its native part is an asset there, not a file of one of its packages. */
const nativePartFromAsset = {
  name: 'native part from an asset',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^koffi$/ }, () => ({ path: join(root, 'node_modules/koffi/index.cjs') }));
    // Handles the lookup of the native part among those packages.
    onResolve({ filter: /^\.\/src\/static\.cjs$/ }, ({ path }) => ({ path, namespace: 'asset' }));
    onLoad({ filter: /./, namespace: 'asset' }, () => ({
      contents: `
        const { loadNativePart } = require('./src/core/executable-parts.ts');
        exports.loadStatic = () => loadNativePart('koffi.node');
      `,
      resolveDir: root,
    }));
  },
};
/**
 * pino without its transports, worker threads and own streams. The daemon writes its log itself (src/core/observe), and
 * the modules of Node that they load (worker_threads, assert) use memory in each process.
 */
const withoutTransports = {
  name: 'pino without transports',
  setup({ onResolve, onLoad }) {
    const from = /node_modules.(pino|pino.lib)$/;
    onResolve({ filter: /^(thread-stream|sonic-boom|worker_threads)$/ }, ({ path, resolveDir }) =>
      from.test(resolveDir) ? { path, namespace: 'left-out' } : undefined,
    );
    onLoad({ filter: /./, namespace: 'left-out' }, ({ path }) => ({
      contents:
        path === 'worker_threads'
          ? 'exports.isMainThread = true;'
          : `module.exports = function () { throw new Error('${path} is not part of the program: pass a stream to pino'); };`,
    }));
  },
};
/**
 * commander with the global `process`. commander imports the module, and an import reads all properties, including lazy
 * ones that load the code for Node's reports.
 */
const globalProcess = {
  name: 'commander with the global process',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:process$/ }, ({ path, resolveDir }) =>
      /node_modules.commander.lib$/.test(resolveDir) ? { path, namespace: 'global', sideEffects: false } : undefined,
    );
    onLoad({ filter: /./, namespace: 'global' }, () => ({ contents: 'export default process;' }));
  },
};
/**
 * The Kubernetes client in the single executable: an asset that is loaded on first use. V8 keeps the text of a script
 * in memory, used or not, and this is half of it.
 */
const clientFromAsset = {
  name: 'Kubernetes client from an asset',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^@kubernetes\/client-node$/ }, ({ path }) => ({ path, namespace: 'script' }));
    onLoad({ filter: /./, namespace: 'script' }, () => ({
      contents: "module.exports = require('./src/core/executable-parts.ts').loadScriptPart('kubernetes-client.cjs');",
      resolveDir: root,
    }));
  },
};
const scripts = {
  absWorkingDir: root,
  bundle: true,
  platform: 'node',
  format: 'cjs',
  target: 'node24',
  logLevel: 'warning',
  minifyWhitespace: true,
  minifySyntax: true,
};
const [script, client] = ['executable.cjs', 'kubernetes-client.cjs'].map((name) => join(fresh, name));
await Promise.all([
  build({ ...common, entryPoints: clients, external, define }),
  // Code that the tools share is bundled once.
  build({ ...common, entryPoints: tools, external, define, splitting: true, chunkNames: 'tools/chunk-[hash]' }),
  build({
    ...common,
    entryPoints: { 'tools/cri-resize-shim-crash': daemon },
    external,
    define: { __CRASH_POINTS__: 'true' },
  }),
  build({
    ...common,
    entryPoints: { 'cri-resize-shim': daemon },
    chunkNames: 'chunks/[name]-[hash]',
    splitting: true,
    // The code that is parsed at each start and stays in memory is minified. Names stay, so that stack traces are
    // readable.
    minifyWhitespace: true,
    minifySyntax: true,
    define,
    inject: ['tools/buffer.mjs'],
    plugins: [withoutTransports, globalProcess],
    // grpc-js loads this package only for channelz, which is disabled.
    external: [...external, '@grpc/proto-loader'],
  }),
  // The script of the single executable, which can load nothing but itself. In CommonJS, lazy imports are also
  // evaluated lazily.
  build({
    ...scripts,
    outfile: script,
    entryPoints: ['src/executable.ts'],
    define,
    external: ['@grpc/proto-loader'],
    plugins: [nativePartFromAsset, clientFromAsset, withoutTransports],
    // src/core/shipped-files.ts reads its own path only outside the executable.
    logOverride: { 'empty-import-meta': 'silent' },
  }),
  build({
    ...scripts,
    outfile: client,
    stdin: { contents: "export { KubeConfig } from '@kubernetes/client-node';", resolveDir: root },
  }),
]);
// esbuild leaves non-ASCII letters in license comments. V8 stores a script that contains one in two bytes per letter:
// 4 MB more in each process.
const escaped = (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`;
for (const file of [script, client]) {
  const text = readFileSync(file, 'utf8');
  if (/\\[^\0-\x7f]/.test(text)) throw new Error(`${file}: a letter behind a backslash cannot be escaped`);
  writeFileSync(file, text.replace(/[^\0-\x7f]/g, escaped));
}
// The manual page, built from the same table as --help.
writeFileSync(join(fresh, 'resizectl.1'), execFileSync(process.execPath, [join(fresh, 'resizectl.js'), 'man']));
// Chunks first, because the file that references them may be started as soon as it exists. Chunks of older builds are
// removed last.
const isChunk = (folder, name) => folder === 'chunks' || /^chunk-/.test(name);
const moved = new Set();
for (const folder of ['chunks', 'tools', '.']) {
  mkdirSync(join(target, folder), { recursive: true });
  const names = readdirSync(join(fresh, folder), { withFileTypes: true }).flatMap((entry) =>
    entry.isFile() ? [entry.name] : [],
  );
  for (const name of names.sort((a, b) => isChunk(folder, b) - isChunk(folder, a))) {
    renameSync(join(fresh, folder, name), join(target, folder, name));
    moved.add(join(folder, name));
  }
}
for (const folder of ['chunks', 'tools'])
  for (const name of readdirSync(join(target, folder)))
    if (isChunk(folder, name) && !moved.has(join(folder, name))) rmSync(join(target, folder, name));
rmSync(fresh, { recursive: true });
