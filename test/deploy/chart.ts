import assert from 'node:assert/strict';
import { execa } from 'execa';
import { readOptions } from '../../src/install/rollout/options.ts';
import { checkParts } from './chart-parts.ts';
import { prepareHelm } from './helm.ts';
import { prepareKubectl } from './kubectl.ts';
import { type Manifest, daemonSet, manifestsOf, normalized } from './manifests.ts';

/**
 * Checks the Helm chart, as a part of npm run check: Helm lints it, it renders the objects of deploy/kustomize, each
 * value is rendered in its place, and invalid values are rejected. test/deploy/kustomize.test.ts tests the objects.
 */

const CHART = 'deploy/helm/cri-resize-shim';
/** A helm that is built from its module has no default release of Kubernetes. */
const COMMON = ['--kube-version', '1.36.0', '--namespace', 'cri-resize-shim'];
const say = (line: string): void => void process.stdout.write(`chart: ${line}\n`);

const invalidValues: readonly (readonly [values: object, word: RegExp])[] = [
  [{ foo: 1 }, /foo/],
  [{ config: { logLevl: 'debug' } }, /logLevl/],
  [{ config: { intercept: 'nope' } }, /intercept/],
  [{ config: { logLevel: 'loud' } }, /logLevel/],
  [{ config: { shutdownTimeout: 30 } }, /shutdownTimeout/],
  [{ image: { name: 'x' } }, /name/],
  [{ image: { digest: 'sha256:0' } }, /digest/],
  [{ label: { value: '' } }, /label\/value/],
  [{ kubeletUnit: 'kubelet; rm -rf /' }, /kubeletUnit/],
  [{ timeout: 60 }, /timeout/],
  [{ timeout: '0s' }, /timeout/],
  [{ timeout: '1..5s' }, /timeout/],
  [{ maxUnavailable: 'ten' }, /maxUnavailable/],
  [{ maxUnavailable: '0%' }, /maxUnavailable/],
  [{ maxUnavailable: '50%', rollout: { canaries: 1 } }, /maxUnavailable/],
  [{ podLabels: { 'app.kubernetes.io/name': 'x' } }, /podLabels/],
  [{ commonLabels: { 'app.kubernetes.io/name': 'x' } }, /commonLabels/],
  [{ nodeSelector: { 'kubernetes.io/os': 'linux' } }, /nodeSelector/],
  [{ nodeSelector: { 'cri-resize-shim.io/install': 'true' } }, /nodeSelector/],
  [{ flags: ['x'] }, /flags\/0/],
  [{ terminationGracePeriodSeconds: 0 }, /terminationGracePeriodSeconds/],
  [{ namespace: 'x' }, /namespace/],
  [{ namespaceOverride: 'A' }, /namespaceOverride/],
  [{ rollout: { parallel: 0 } }, /parallel/],
  [{ rollout: { canaries: 21 } }, /canaries/],
  [{ rollout: { soak: '5' } }, /soak/],
  [{ rollout: { soak: '0s' } }, /soak/],
  [{ affinity: { nodes: {} } }, /affinity/],
  [{ podAnnotations: { a: 1 } }, /podAnnotations/],
  [{ podMonitor: { port: 70_000 } }, /port/],
  [{ podMonitor: { enabled: true }, config: { metricsBind: '127.0.0.1:9467' } }, /metricsBind/],
  [{ restore: { timeoutSeconds: 1 } }, /timeoutSeconds/],
  [{ restore: { timeoutSeconds: 4100 } }, /timeoutSeconds/],
  [{ podMonitor: { enabled: true }, config: { metricsTokenFile: '/etc/token' } }, /credentials/],
  [{ podMonitor: { credentials: { secretName: 'A' } } }, /secretName/],
  [{ config: { nodeName: 'node-1' } }, /config\.nodeName/],
  ...['', '-viewer', '-restore'].map((of): readonly [object, RegExp] => [
    { serviceAccount: { name: `cri-resize-shim${of}` } },
    /serviceAccount\.name/,
  ]),
];

const helm = await prepareHelm(say);
if (helm === undefined) say('NOT CHECKED: neither helm nor Go to build it is installed (commands "helm", "go")');
else await check(helm);

async function check(program: string): Promise<void> {
  const render = async (values: object = {}, flags = ['--no-hooks']): Promise<readonly Manifest[]> => {
    const args = ['template', 'x', CHART, ...COMMON, ...flags, '-f', '-'];
    return manifestsOf((await execa(program, args, { input: JSON.stringify(values) })).stdout);
  };
  await execa(program, ['lint', '--strict', CHART]);
  say('helm lint --strict: ok');

  const base = (await execa(await prepareKubectl(say), ['kustomize', 'deploy/kustomize'])).stdout;
  assert.deepEqual(normalized(await render({ createNamespace: true })), normalized(manifestsOf(base)));
  say('renders the objects of deploy/kustomize');

  await values(render);
  await checkParts(render, await render({}, []));
  say('its optional parts are rendered');
  say('each value is rendered in its place');

  for (const [invalid, word] of invalidValues) {
    const rejected = await execa(program, ['template', 'x', CHART, ...COMMON, '-f', '-'], {
      input: JSON.stringify(invalid),
      reject: false,
    });
    assert.notEqual(rejected.exitCode, 0, `accepted: ${JSON.stringify(invalid)}`);
    assert.match(rejected.stderr, word);
  }
  say('invalid values are rejected');
}

async function values(render: (values?: object) => Promise<readonly Manifest[]>): Promise<void> {
  const manifests = await render({
    ...{ namespaceOverride: 'elsewhere', createNamespace: true, commonLabels: { team: 'nodes' } },
    image: { repository: 'registry.example.com/shim', tag: '9', pullPolicy: 'Always', pullSecrets: ['key'] },
    label: { key: 'example.com/shim', value: 'yes' },
    config: { logLevel: 'debug', metricsBind: '127.0.0.1:9467', metricsTokenFile: '/etc/token' },
    ...{ kubeletUnit: 'k3s.service', timeout: '5m', flags: ['--lease-duration=10m'] },
    ...{
      repairDrift: true,
      rollout: { parallel: 20, canaries: 2, canaryLabel: { key: 'tier', value: 'first' }, soak: '10m' },
    },
    ...{ nodeSelector: { pool: 'a' }, affinity: { nodeAffinity: { x: 1 } }, serviceAccount: { name: 'sa' } },
    ...{ daemonSetAnnotations: { a: '1' }, podAnnotations: { b: '2' }, podLabels: { c: '3' }, revisionHistoryLimit: 3 },
    ...{ terminationGracePeriodSeconds: 90, maxUnavailable: '100%', priorityClassName: 'high' },
    tolerations: [{ key: 'a', operator: 'Exists' }],
    resources: { limits: { memory: '1Gi' } },
  });
  const namespaces = manifests.map(({ metadata }) => metadata.namespace).filter((name) => name !== undefined);
  assert.deepEqual([...new Set(namespaces)].toSorted(), ['default', 'elsewhere']);
  assert.ok(manifests.some(({ kind, metadata }) => kind === 'Namespace' && metadata.name === 'elsewhere'));
  for (const { subjects } of manifests)
    if (subjects !== undefined) assert.deepEqual((subjects as Manifest['metadata'][])[0]?.namespace, 'elsewhere');
  const map = manifests.find(({ kind }) => kind === 'ConfigMap') as unknown as {
    readonly data: Record<string, string>;
  };
  assert.match(
    map.data['config.yaml'] ?? '',
    /\nlogLevel: debug\nmetricsBind: 127.0.0.1:9467\nmetricsTokenFile: \/etc\/token\n$/,
  );

  for (const { metadata } of manifests) assert.equal(metadata.labels?.['team'], 'nodes', metadata.name);

  const set = daemonSet(manifests);
  assert.deepEqual(set.spec.updateStrategy, { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '100%' } });
  const few = daemonSet(await render({ maxUnavailable: 3 }));
  assert.deepEqual(few.spec.updateStrategy, { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 3 } });
  const { containers, nodeSelector, tolerations, priorityClassName, imagePullSecrets, ...pod } = set.spec.template.spec;
  assert.deepEqual(nodeSelector, { 'kubernetes.io/os': 'linux', 'example.com/shim': 'yes', pool: 'a' });
  assert.deepEqual(pod.affinity, { nodeAffinity: { x: 1 } });
  assert.deepEqual(
    [pod.serviceAccountName, set.spec.revisionHistoryLimit, set.metadata.annotations],
    ['sa', 3, { a: '1' }],
  );
  const { labels = {}, annotations: noted = {} } = set.spec.template.metadata;
  assert.deepEqual([labels['c'], noted['b']], ['3', '2']);
  assert.deepEqual(tolerations, [{ key: 'a', operator: 'Exists' }]);
  assert.deepEqual([priorityClassName, imagePullSecrets], ['high', [{ name: 'key' }]]);
  const [installer] = containers;
  assert.ok(installer !== undefined);
  assert.deepEqual([installer.image, installer['imagePullPolicy']], ['registry.example.com/shim:9', 'Always']);
  assert.deepEqual(installer.resources, { requests: { cpu: '10m', memory: '64Mi' }, limits: { memory: '1Gi' } });
  const options = readOptions(installer.args);
  const { label, kubeletUnit, timeout, leaseDuration, grace } = options;
  assert.deepEqual([options.parallel, options.canaries, options.soak, options.repairDrift], [20, 2, 600_000, true]);
  assert.deepEqual(options.canaryLabel, { key: 'tier', value: 'first' });
  assert.deepEqual(label, { key: 'example.com/shim', value: 'yes' });
  assert.deepEqual([kubeletUnit, timeout, leaseDuration], ['k3s.service', '5m', 600_000]);
  assert.deepEqual([grace, pod.terminationGracePeriodSeconds], [90_000, 90]);

  const digest = `sha256:${'a'.repeat(64)}`;
  const byDigest = daemonSet(await render({ image: { repository: 'registry.example.com/shim', tag: '9', digest } }));
  assert.deepEqual(byDigest.spec.template.spec.containers[0]?.image, `registry.example.com/shim@${digest}`);

  // Only a change of the configuration replaces the pods.
  const annotations = async (config: object): Promise<unknown> =>
    daemonSet(await render({ config })).spec.template.metadata.annotations;
  assert.deepEqual(await annotations({}), await annotations({}));
  assert.notDeepEqual(await annotations({}), await annotations({ logLevel: 'debug' }));
}
