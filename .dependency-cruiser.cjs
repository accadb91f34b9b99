// The import rules of docs/architecture.md: a folder imports only from the folders listed for it. Type-only imports count.
// Any other import between two folders fails `npm run check`.
const mayImport = {
  core: [],
  observe: ['core'],
  config: ['observe', 'core'],
  systemd: ['observe', 'core'],
  bypass: ['core'],
  cgroups: ['core'],
  tmpfs: ['core'],
  runtime: ['http2', 'core'],
  kubelet: ['cgroups', 'observe', 'core'],
  endpoint: ['observe', 'core'],
  sandbox: ['kubelet', 'cgroups', 'tmpfs', 'runtime', 'observe', 'core'],
  resize: ['sandbox', 'kubelet', 'cgroups', 'tmpfs', 'runtime', 'observe', 'core'],
  grpc: ['runtime', 'observe', 'core'],
  server: ['grpc', 'resize', 'sandbox', 'kubelet', 'cgroups', 'runtime', 'http2', 'observe', 'core'],
  http2: [],
  api: ['grpc', 'resize', 'sandbox', 'runtime', 'observe', 'core'],
  monitoring: ['resize', 'sandbox', 'observe', 'core'],
  'kubernetes/client': ['core'],
  'kubernetes/pods': ['kubernetes/client', 'resize', 'sandbox', 'tmpfs', 'observe', 'core'],
  'kubernetes/annotations': ['kubernetes/pods', 'kubernetes/client', 'resize', 'sandbox', 'tmpfs', 'observe', 'core'],
  'install/host': ['runtime', 'core'],
  'install/kubelet': ['install/host', 'endpoint', 'core'],
  'install/node': ['install/host', 'install/kubelet', 'endpoint', 'cgroups', 'config', 'core'],
  'install/rollout': ['install/host', 'install/node', 'endpoint', 'kubernetes', 'config', 'observe', 'core'],
  resizectl: ['install', 'systemd', 'bypass', 'api/messages\\.ts', 'grpc', 'config', 'observe', 'core'],
};

// Inside src/resize: each folder imports only from the folders above it in this list.
const resizeFloors = [
  'model',
  'plan',
  'admission',
  'journal',
  'history',
  'volumes',
  'foresight',
  'execute',
  'values',
  'operations',
  'queue',
  'report',
];

const inside = (folders) => `^src/(${folders.join('|')})(/|$)`;

/** Files that code outside their folder imports by name, and the code that does. All others are imported through their folder's index.ts. */
const importedByName = [
  // Loaded on demand: an import of their folder's index.ts would load them at start.
  { from: '^src/(api)/server\\.ts$', to: '^src/grpc/grpc-js/' },
  { from: '^src/(server)/handlers/js-server\\.ts$', to: '^src/grpc/grpc-js/' },
  { from: '^src/(daemon)/', to: '^src/kubernetes/(annotations|pods)/' },
  // The resize API's messages, which resizectl shares. It has no use for the server.
  { from: '^src/(resizectl)/', to: '^src/api/messages\\.ts$' },
];

/**
 * The rules of a resize and what they reach: no file, no clock, no call, no package. These files import each other by name, since an
 * index.ts reaches its whole folder.
 */
const pure = [
  'resize/(model|plan)/',
  'cgroups/values/',
  'core/(errors|grpc)\\.ts$',
  'core/quantities/',
  'http2/(errors|hpack/field)\\.ts$',
  'kubelet/(formulas|memory-formulas)\\.ts$',
  'observe/interfaces\\.ts$',
  'runtime/(backend-errors|description|messages|channel/outcome)\\.ts$',
  'sandbox/(declared-pod|names|pod-state)\\.ts$',
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
    ...resizeFloors.map((folder, floor) => ({
      name: `resize-${folder}-imports-downwards`,
      severity: 'error',
      from: { path: `^src/resize/${folder}/` },
      to: { path: '^src/resize/', pathNot: `^src/resize/(${resizeFloors.slice(0, floor + 1).join('|')})/` },
    })),
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
      name: 'kubernetes-index-is-the-client',
      severity: 'error',
      from: { path: '^src/kubernetes/index\\.ts$' },
      to: { pathNot: '^src/kubernetes/client/' },
    },
    {
      // page-size.ts reads a constant of the machine, once.
      name: 'pure-files-import-only-pure-files',
      severity: 'error',
      from: { path: PURE, pathNot: '^src/core/quantities/page-size\\.ts$' },
      to: { pathNot: PURE },
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
      from: { path: '^src/', pathNot: '^src/(monitoring/|daemon/metrics\\.ts$)' },
      to: { path: '^src/monitoring/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'grpc-js-servers-are-loaded-with-their-first-client',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(grpc/grpc-js/|api/server\\.ts$|server/handlers/js-server\\.ts$)' },
      to: { path: '^src/grpc/grpc-js/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'grpc-js-is-used-by-resizectl-and-lazy-files-alone',
      severity: 'error',
      from: {
        path: '^src/',
        pathNot: '^src/(grpc/grpc-js/|api/server\\.ts$|server/handlers/js-server\\.ts$|resizectl/)',
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
