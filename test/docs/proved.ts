const withToken = 'test/daemon/metrics.test.ts, with a token file of its own';

/**
 * Reasons why test/e2e/command-line/docs.test.ts does not run a command of the pages: another test runs it, or it
 * cannot run here. The keys are the lines on the pages.
 */
export const elsewhere: Readonly<Record<string, string>> = {
  'npm run demo': 'boots its own node for minutes; test/e2e tests what it shows',
  'npm test': 'runs this test itself',
  'npm run build': 'npm test runs it first',
  'npm run package':
    'test/e2e/systemd/units.test.ts and test/e2e/install/executable.test.ts make, install and run the packages',
  'npm run release -- --verify --key release-key.pem':
    'makes all packages twice: test/tools/release tests its parts, openssl’s verification included',
  'cri-resize-shim resizectl install': 'test/e2e/install/executable.test.ts, on a node with systemd',
  'resizectl install --dry-run': 'test/e2e/install/install.test.ts, on a node with systemd',
  './node_modules/.bin/node dist/resizectl.js install --dry-run':
    'test/e2e/install/install.test.ts, on a node with systemd',
  './node_modules/.bin/node dist/resizectl.js install': 'test/e2e/install/install.test.ts, on a node with systemd',
  'resizectl install': 'test/e2e/install/install.test.ts, on a node with systemd',
  'resizectl off': 'test/e2e/systemd/operator.test.ts, on a node with systemd',
  'resizectl on': 'test/e2e/systemd/operator.test.ts, on a node with systemd',
  'resizectl uninstall': 'test/e2e/install/install.test.ts, on a node with systemd',
  'install -m 0640 -g prometheus /dev/null /etc/cri-resize-shim/metrics-token': withToken,
  'openssl rand -hex 32 > /etc/cri-resize-shim/metrics-token': withToken,
  'cri-resize-shim --metrics-bind 127.0.0.1:9467 --metrics-token-file /etc/cri-resize-shim/metrics-token': withToken,
  'curl -H "Authorization: Bearer $(cat /etc/cri-resize-shim/metrics-token)" http://127.0.0.1:9467/metrics': withToken,
  './node_modules/.bin/node dist/cri-resize-shim.js': 'every test in test/e2e starts it so, with flags',
};

const needsCluster = 'needs a cluster: an API server and a kubelet that calls the shim';
const needsBuilder =
  'needs a builder and a registry: npm run nightly -- --only image has them, and test/image/dockerfile.test.ts runs the Dockerfile’s steps';
const needsCrictl =
  'crictl is built only if Go is installed: npm run nightly -- --only conformance runs it through the shim';
const needsSystemd = 'needs a machine whose first process is systemd, with the units and a kubelet in place';

/** Reasons why that test runs no command that begins with the key. */
export const notRunHere: Readonly<Record<string, string>> = {
  'kubectl ': needsCluster,
  'helm ': `${needsCluster}; npm run check renders the chart with helm, if Go is installed`,
  'docker ': needsBuilder,
  'crictl ': needsCrictl,
  'systemctl ': needsSystemd,
  'journalctl ': needsSystemd,
  'openssl ': 'needs a release: test/tools/release.test.ts runs it',
};
