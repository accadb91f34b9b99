/**
 * Why commands of the pages are not run by test/e2e/command-line/docs.test.ts: another test runs them, or they cannot be run here. Lines as they
 * stand on the pages.
 */
export const elsewhere: Readonly<Record<string, string>> = {
  'npm run demo': 'boots a node of its own for minutes; what it shows is tested in test/e2e',
  'npm test': 'runs this very test',
  'npm run setup': 'npm test begins with it',
  'npm run package':
    'test/e2e/systemd/units.test.ts and test/e2e/install/executable.test.ts make the packages so, install and run them',
  'cri-resize-shim resizectl install': 'test/e2e/install/executable.test.ts, on a node with systemd',
  'npm run node -- --containerd 1.7 --runtime crun': 'npm test runs the tests in such nodes',
  'resizectl install --dry-run': 'test/e2e/install/install.test.ts, on a node with systemd',
  'resizectl install': 'test/e2e/install/install.test.ts, on a node with systemd',
  'resizectl uninstall': 'test/e2e/install/install.test.ts, on a node with systemd',
  './node_modules/.bin/node dist/cri-resize-shim.js': 'every test in test/e2e starts it so, with flags',
};

const needsCluster = 'needs a cluster: an API server and a kubelet that calls the shim';
const needsBuilder =
  'needs a builder and a registry: npm run image has them, and test/tools/packaging/image.test.ts carries out the Dockerfile’s steps';
const needsCrictl = 'crictl is built only where Go is: npm run conformance runs it through the shim';
const needsSystemd = 'needs a machine whose first process is systemd, with the units and a kubelet in place';

/** By how they begin. */
export const notRunHere: Readonly<Record<string, string>> = {
  'kubectl ': needsCluster,
  'helm ': `${needsCluster}; npm run check renders the chart with helm, where Go is`,
  'docker ': needsBuilder,
  'crictl ': needsCrictl,
  'systemctl ': needsSystemd,
  'journalctl ': needsSystemd,
};
