// The import rules of docs/architecture.md: a folder imports only from the folders listed for it. Type-only imports count.
// Any other import between two folders fails `npm run check`.
const mayImport = {
  core: [],
  http2: [],
  bypass: ['core'],
  cgroups: ['core'],
  tmpfs: ['core'],
  runtime: ['http2', 'core'],
  kubelet: ['cgroups', 'core'],
  'kubelet/endpoint': ['core'],
  sandbox: ['kubelet', 'cgroups', 'tmpfs', 'runtime', 'core'],
  server: ['sandbox', 'kubelet', 'cgroups', 'runtime', 'http2', 'core'],
  'server/unary': ['runtime', 'core'],
  'server/api': ['server/unary', 'server/proxy', 'server/[a-z-]+\\.ts', 'sandbox', 'runtime', 'core'],
  monitoring: ['sandbox', 'core'],
  'kubernetes/client': ['core'],
  'kubernetes/pods': ['kubernetes/client', 'sandbox', 'tmpfs', 'core'],
  'kubernetes/annotations': ['kubernetes/pods', 'kubernetes/client', 'sandbox', 'tmpfs', 'core'],
  'install/host': ['runtime', 'core'],
  'install/kubelet': ['install/host', 'kubelet', 'core'],
  'install/node': ['install/host', 'install/kubelet', 'kubelet', 'cgroups', 'core'],
  'install/rollout': ['install/host', 'install/node', 'kubelet', 'kubernetes', 'monitoring/metrics-relay\\.ts', 'core'],
  resizectl: ['install', 'bypass', 'server/api/messages\\.ts', 'server/unary/status\\.ts', 'core'],
};

// Folders in layers: each imports only from the folders above it in the list.
const layers = {
  core: ['quantities', 'observe', 'config', 'systemd'],
  sandbox: [
    'pods',
    'plan',
    'admission',
    'journal',
    'history',
    'volumes',
    'foresight',
    'transaction',
    'values',
    'operations',
    'queue',
    'report',
  ],
};

const inside = (folders) => `^src/(${folders.join('|')})(/|$)`;

/** Files that code outside their folder imports by name, and the code that does. All others are imported through their folder's index.ts. */
const importedByName = [
  // Loaded on demand: an import of their folder's index.ts would load them at start.
  { from: '^src/(daemon)/', to: '^src/(kubernetes/(annotations|pods)|kubelet/endpoint)/' },
  { from: '^src/(install)/', to: '^src/(kubelet/endpoint|monitoring/metrics-relay)' },
  // What resizectl shares with the server. It has no use for the server.
  { from: '^src/(resizectl)/', to: '^src/server/(api/messages|unary/status)\\.ts$' },
];

/**
 * The rules of a resize and what they reach: no file, no clock, no call, no package. These files import each other by name, since an
 * index.ts reaches its whole folder.
 */
const pure = [
  'sandbox/plan/',
  'cgroups/values/',
  'core/(errors|grpc)\\.ts$',
  'core/quantities/',
  'core/observe/interfaces\\.ts$',
  'http2/(errors|hpack/field)\\.ts$',
  'kubelet/(formulas|memory-formulas)\\.ts$',
  'runtime/(backend-errors|description|messages|channel/outcome)\\.ts$',
  'sandbox/pods/(declared-pod|names|pod-state)\\.ts$',
  'tmpfs/sizes\\.ts$',
];
const PURE = `^src/(${pure.join('|')})`;

module.exports = {
  forbidden: [
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    ...Object.entries(mayImport).map(([folder, allowed]) => ({
      name: `${folder}-imports-one-way`,
      severity: 'error',
      from: { path: `^src/${folder}/` },
      to: { path: '^src/', pathNot: inside([folder, ...allowed]) },
    })),
    ...Object.entries(layers).flatMap(([folder, all]) =>
      all.map((layer, number) => ({
        name: `${folder}-${layer}-imports-downwards`,
        severity: 'error',
        from: { path: `^src/${folder}/${layer}/` },
        to: { path: `^src/${folder}/(${all.slice(number + 1).join('|') || '-'}|index\\.ts$)/?` },
      })),
    ),
    {
      // What the node is made of does not know the node.
      name: 'parts-of-the-node-do-not-import-it',
      severity: 'error',
      from: { path: '^src/sandbox/(pods|plan|admission|journal|history)/' },
      to: { path: '^src/sandbox/[^/]+\\.ts$' },
    },
    {
      name: 'a-transaction-knows-no-listener',
      severity: 'error',
      from: { path: '^src/sandbox/transaction/transaction' },
      to: { path: '^src/sandbox/(history/|transaction/listeners)', pathNot: 'history/transaction-events\\.ts$' },
    },
    {
      name: 'core-files-import-no-folder-but-quantities',
      severity: 'error',
      from: { path: '^src/core/[^/]+\\.ts$', pathNot: '/index\\.ts$' },
      to: { path: `^src/core/(${layers.core.slice(1).join('|')})/` },
    },
    {
      name: 'folders-are-imported-through-their-index',
      severity: 'error',
      from: { path: '^src/([^/]+)/', pathNot: [PURE, ...importedByName.map(({ from }) => from)] },
      to: { path: '^src/[^/]+/', pathNot: ['^src/$1/', '^src/[^/]+/index\\.ts$'] },
    },
    ...importedByName.map(({ from, to }, number) => ({
      name: `imported-by-name-${number + 1}`,
      severity: 'error',
      from: { path: from },
      to: { path: '^src/[^/]+/', pathNot: ['^src/$1/', '^src/[^/]+/index\\.ts$', to] },
    })),
    {
      name: 'programs-import-through-an-index',
      severity: 'error',
      from: { path: '^src/[^/]+\\.ts$' },
      to: { path: '^src/[^/]+/', pathNot: '^src/([^/]+/index|resizectl/main)\\.ts$' },
    },
    {
      name: 'only-top-level-folders-have-an-index',
      severity: 'error',
      from: {},
      to: { path: '^src/.+/.+/index\\.ts$' },
    },
    {
      // esbuild loads all that an index.ts names as soon as one file of it is loaded.
      name: 'an-index-has-nothing-that-is-loaded-on-demand',
      severity: 'error',
      from: { path: '^src/[^/]+/index\\.ts$' },
      to: { path: '^src/(kubernetes/(annotations|pods)|kubelet/endpoint|server/unary/grpc-js)/' },
    },
    {
      // page-size.ts reads a constant of the machine, once.
      name: 'pure-files-import-only-pure-files',
      severity: 'error',
      from: { path: PURE, pathNot: '^src/core/quantities/page-size\\.ts$' },
      // The types of the messages are generated.
      to: { pathNot: `${PURE}|^dist/protos/|/@grpc/proto-loader/` },
    },
    {
      name: 'proto-loader-is-imported-for-types-only',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '/@grpc/proto-loader/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'kubernetes-annotations-are-loaded-only-with-a-kubeconfig',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(kubernetes/(annotations|pods)/|daemon/annotations\\.ts$)' },
      to: { path: '^src/kubernetes/(annotations|pods)/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'monitoring-is-loaded-only-with-metrics-bind',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(monitoring/|(daemon/metrics|install/rollout/main)\\.ts$)' },
      to: { path: '^src/monitoring/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'grpc-js-servers-are-loaded-with-their-first-client',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/server/(unary/grpc-js/|(api|handlers)/js-server\\.ts$)' },
      to: { path: '^src/server/unary/grpc-js/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'grpc-js-is-used-by-resizectl-and-lazy-files-alone',
      severity: 'error',
      from: {
        path: '^src/',
        pathNot: '^src/(server/(unary/grpc-js/|(api|handlers)/js-server\\.ts$)|resizectl/)',
      },
      to: { path: '@grpc/grpc-js', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'kubernetes-client-is-used-in-one-file',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/kubernetes/client/connection\\.ts$' },
      to: { path: '@kubernetes/client-node' },
    },
    {
      name: 'src-does-not-import-tests-or-tools',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|bench|demo|tools)/' },
    },
    { name: 'tools-do-not-import-tests', severity: 'error', from: { path: '^tools/' }, to: { path: '^test/' } },
    {
      name: 'no-unlisted',
      severity: 'error',
      from: { path: '^src/' },
      to: { dependencyTypes: ['npm-no-pkg', 'npm-dev', 'unknown', 'undetermined'] },
    },
    { name: 'resolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default', 'types'] },
  },
};
