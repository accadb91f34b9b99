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
  runtime: ['server/http2', 'core'],
  kubelet: ['cgroups', 'observe', 'core'],
  endpoint: ['observe', 'core'],
  sandbox: ['kubelet', 'cgroups', 'tmpfs', 'runtime', 'observe', 'core'],
  resize: ['sandbox', 'kubelet', 'cgroups', 'tmpfs', 'runtime', 'observe', 'core'],
  grpc: ['runtime', 'observe', 'core'],
  server: ['grpc', 'resize', 'sandbox', 'kubelet', 'cgroups', 'runtime', 'observe', 'core'],
  'server/http2': [],
  api: ['grpc', 'resize', 'sandbox', 'runtime', 'observe', 'core'],
  'api/wire': ['grpc', 'core'],
  monitoring: ['resize', 'sandbox', 'observe', 'core'],
  'kubernetes/client': ['core'],
  'kubernetes/pods': ['kubernetes/client', 'resize', 'sandbox', 'tmpfs', 'observe', 'core'],
  'kubernetes/annotations': ['kubernetes/pods', 'kubernetes/client', 'resize', 'sandbox', 'tmpfs', 'observe', 'core'],
  'install/host': ['runtime', 'core'],
  'install/kubelet': ['install/host', 'endpoint', 'core'],
  'install/node': ['install/host', 'install/kubelet', 'endpoint', 'cgroups', 'config', 'core'],
  'install/rollout': ['install/node', 'endpoint', 'kubernetes/client', 'config', 'observe', 'core'],
  resizectl: ['install/node', 'systemd', 'bypass', 'api/wire', 'config', 'observe', 'core'],
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

/** The folders with an index.ts: code outside the folder imports only that file. */
const { readdirSync } = require('node:fs');
const { dirname } = require('node:path');
const foldersWithIndex = readdirSync(`${__dirname}/src`, { recursive: true })
  .map(String)
  .filter((file) => file.endsWith('/index.ts'))
  .map((file) => dirname(file));

module.exports = {
  forbidden: [
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    ...Object.entries(mayImport).map(([folder, allowed]) => ({
      name: `${folder}-imports-one-way`,
      severity: 'error',
      from: { path: `^src/${folder}/`, ...(folder === 'api' && { pathNot: '^src/api/wire/' }) },
      to: { path: '^src/', pathNot: inside([folder, ...allowed]) },
    })),
    ...resizeFloors.map((folder, floor) => ({
      name: `resize-${folder}-imports-downwards`,
      severity: 'error',
      from: { path: `^src/resize/${folder}/` },
      to: { path: '^src/resize/', pathNot: `^src/resize/(${resizeFloors.slice(0, floor + 1).join('|')})/` },
    })),
    ...foldersWithIndex.map((folder) => ({
      name: `${folder}-is-imported-through-its-index`,
      severity: 'error',
      from: { path: '^src/', pathNot: `^src/${folder}/` },
      to: {
        path: `^src/${folder}/`,
        pathNot: [`^src/${folder}/index\\.ts$`, '^src/(api/wire|server/http2|grpc/grpc-js)/index\\.ts$'],
      },
    })),
    {
      name: 'resize-model-and-plan-are-pure',
      severity: 'error',
      from: { path: '^src/resize/(model|plan)/' },
      to: { dependencyTypes: ['core'] },
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
      from: { path: '^src/', pathNot: '^src/(grpc/grpc-js/|api/server\\.ts$|server/handlers/serving/js-server\\.ts$)' },
      to: { path: '^src/grpc/grpc-js/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'grpc-js-client-of-streams-is-loaded-with-the-first-of-them',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^src/runtime/stream-client\\.ts$', dependencyTypesNot: ['type-only', 'dynamic-import'] },
    },
    {
      name: 'grpc-js-is-used-by-resizectl-and-lazy-files-alone',
      severity: 'error',
      from: {
        path: '^src/',
        pathNot:
          '^src/(runtime/stream-client\\.ts$|grpc/grpc-js/|api/server\\.ts$|server/handlers/serving/js-server\\.ts$|resizectl/)',
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
