// The house has floors (docs/architecture.md): a folder may import only from the folders listed for it.
// Everything else between two folders of src is an import upwards or sideways, and fails `npm run check`.
const mayImport = {
  units: [],
  errors: ['units'],
  observe: [],
  shipped: [],
  systemd: ['errors', 'observe'],
  cgroups: ['units', 'errors'],
  tmpfs: ['units', 'errors'],
  runtime: ['shipped', 'units', 'errors'],
  sandbox: ['cgroups', 'tmpfs', 'runtime', 'units', 'errors', 'observe'],
  kubernetes: ['sandbox', 'units', 'errors', 'observe'],
  server: ['sandbox', 'runtime', 'shipped', 'units', 'errors', 'observe'],
  monitoring: ['sandbox', 'units', 'errors', 'observe'],
  config: ['units', 'errors', 'observe'],
  install: ['cgroups', 'runtime', 'shipped', 'units', 'errors'],
  // Of what talks to Kubernetes the talking alone.
  installer: ['install', 'units', 'errors', 'config', 'kubernetes/(api|connection|errors|event-body)\\.ts'],
  // Of the server the messages alone, and what errors carry, which both speak.
  resizectl: ['install', 'units', 'errors', 'config', 'server/resize-api/messages\\.ts', 'server/error-info\\.ts'],
};

module.exports = {
  forbidden: [
    {
      name: 'no-circular',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    ...Object.entries(mayImport).map(([folder, allowed]) => ({
      name: `${folder}-imports-one-way`,
      severity: 'error',
      from: { path: `^src/${folder}/` },
      // What may end anywhere in a test build is asked everywhere, and imports nothing.
      to: { path: '^src/', pathNot: [`^src/(${[folder, ...allowed].join('|')})(/|$)`, '^src/crash-points\\.ts$'] },
    })),
    {
      name: 'kubernetes-is-loaded-only-where-it-is-put-together',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(kubernetes/|installer/|kubernetes-annotations\\.ts$)' },
      to: { path: '^src/kubernetes/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'monitoring-is-loaded-only-where-it-is-put-together',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(monitoring/|metrics\\.ts$)' },
      to: { path: '^src/monitoring/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'kubernetes-client-is-used-in-one-file',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/kubernetes/connection\\.ts$' },
      to: { path: '@kubernetes/client-node' },
    },
    {
      name: 'src-does-not-import-tests',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|bench|demo|packaging|scripts)/' },
    },
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
