import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { execa } from 'execa';
import { readOptions } from '../../src/install/rollout/options.ts';
import type { DaemonSet, Manifest, Rule } from './manifests.ts';
import { daemonSet, isDaemonSet, keyOf, manifestsOf, normalized, prepareHelm, prepareKubectl } from './manifests.ts';

/** Checks the parts of the Helm chart that deploy/kustomize does not have: a part of npm run check, see chart.ts. */

type Render = (values?: object, flags?: string[]) => Promise<readonly Manifest[]>;

const STANDARD = ['name', 'instance', 'component', 'part-of', 'version', 'managed-by'];

/** @param all the objects with default values, hooks included */
export async function checkParts(render: Render, all: readonly Manifest[]): Promise<void> {
  for (const manifest of all)
    for (const name of STANDARD)
      assert.ok(manifest.metadata.labels?.[`app.kubernetes.io/${name}`], `${keyOf(manifest)} has no label ${name}`);
  // The release's namespace exists already.
  assert.deepEqual(
    all.find(({ kind }) => kind === 'Namespace'),
    undefined,
  );
  await checkRestore(render, all);
  await checkAnnotations(render);
  await checkPodMonitor(render);
  await checkViewer(render);
  await checkCanary(render);
  const none = { rbac: { create: false }, serviceAccount: { create: false, name: 'mine' } };
  const bare = await render(none);
  assert.deepEqual(bare.map(({ kind }) => kind).toSorted(), ['ConfigMap', 'DaemonSet', 'DaemonSet']);
  const withParts = await render({ ...none, annotations: { enabled: true }, podMonitor: { enabled: true } }, []);
  assert.deepEqual(withParts.map(({ kind }) => kind).toSorted(), [
    ...['ConfigMap', 'DaemonSet', 'DaemonSet', 'Job', 'PodMonitor', 'Secret', 'ServiceAccount', 'ServiceAccount'],
  ]);
  assert.equal(daemonSet(bare).spec.template.spec.serviceAccountName, 'mine');
}

const hook = ({ metadata }: Manifest): string | undefined => metadata.annotations?.['helm.sh/hook'];

async function checkRestore(render: Render, all: readonly Manifest[]): Promise<void> {
  const hooks = all.filter((manifest) => hook(manifest) !== undefined);
  assert.deepEqual(hooks.map(({ kind }) => kind).toSorted(), [...['Job', 'Role', 'RoleBinding', 'ServiceAccount']]);
  for (const manifest of hooks) {
    assert.equal(hook(manifest), 'pre-delete', keyOf(manifest));
    // Only the objects that a failed Job needs remain, for inspection.
    assert.equal(manifest.metadata.annotations?.['helm.sh/hook-delete-policy'], 'before-hook-creation,hook-succeeded');
  }
  const rules = hooks.flatMap((manifest) => (manifest['rules'] as Rule[] | undefined) ?? []);
  const sets = ['cri-resize-shim-installer', 'cri-resize-shim-canary'];
  assert.deepEqual(rules, [{ apiGroups: ['apps'], resources: ['daemonsets'], resourceNames: sets, verbs: ['patch'] }]);
  const job = hooks.find(({ kind }) => kind === 'Job') as unknown as {
    spec: {
      activeDeadlineSeconds: number;
      template: { spec: { containers: { command: string[]; args: string[]; image: string }[] } };
    };
  };
  const [container] = job.spec.template.spec.containers;
  const installer = daemonSet(all).spec.template.spec.containers[0];
  assert.deepEqual(container?.command, [...(installer?.command ?? []), 'uninstall-all']);
  assert.equal(container.image, installer?.image);
  assert.deepEqual(container.args, ['--namespace=$(NAMESPACE)', 'cri-resize-shim-installer']);
  checkTimes(job.spec.activeDeadlineSeconds);
  const without = await render({ restore: { enabled: false } }, []);
  assert.ok(without.every((manifest) => hook(manifest) === undefined));
}

/** Checks that the Job ends before Helm, so that nodes with the shim are reported. */
function checkTimes(job: number): void {
  for (const page of ['docs/kubernetes.md', 'docs/break-glass.md', 'deploy/helm/cri-resize-shim/README.md']) {
    const text = readFileSync(page, 'utf8');
    const [, minutes] = /helm uninstall cri-resize-shim -n cri-resize-shim --timeout (\d+)m\b/.exec(text) ?? [];
    assert.ok(Number(minutes) * 60 >= job + 300, `${page}: helm has ${minutes ?? 'no'} minutes, the Job ${job} s`);
  }
}

async function checkCanary(render: Render): Promise<void> {
  const nodeSelector = { pool: 'a' };
  const canary = { nodeSelector, image: { tag: '10' }, config: { logLevel: 'debug', intercept: false } };
  const config = { shutdownTimeout: '9s', intercept: true };
  const all = await render({ image: { tag: '9' }, config, canary }, []);
  const named = (kind: string, name: string): Manifest =>
    all.find((manifest) => manifest.kind === kind && manifest.metadata.name === name)!;
  const pod = (name: string): DaemonSet['spec']['template']['spec'] =>
    (named('DaemonSet', `cri-resize-shim-${name}`) as DaemonSet).spec.template.spec;
  const [one, others] = [pod('canary'), pod('installer')];
  assert.deepEqual(
    [one, others].map(({ containers }) => containers[0]?.image),
    ['cri-resize-shim:10', 'cri-resize-shim:9'],
  );
  const common = { 'kubernetes.io/os': 'linux', 'cri-resize-shim.io/install': 'true' };
  assert.deepEqual([one.nodeSelector, others.nodeSelector], [{ ...common, ...nodeSelector }, common]);
  const terms = [{ matchExpressions: [{ key: 'pool', operator: 'NotIn', values: ['a'] }] }];
  const required = { nodeSelectorTerms: terms };
  assert.deepEqual(others['affinity'], { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: required } });
  assert.equal(one['affinity'], undefined);
  const configs = ['cri-resize-shim-canary', 'cri-resize-shim'].map(
    (name) => (named('ConfigMap', name)['data'] as Record<string, string>)['config.yaml'],
  );
  assert.match(configs[0] ?? '', /\nintercept: false\nlogLevel: debug\nshutdownTimeout: 9s\n$/);
  assert.match(configs[1] ?? '', /\nintercept: true\nshutdownTimeout: 9s\n$/);
  const [job] = (named('Job', 'cri-resize-shim-restore') as DaemonSet).spec.template.spec.containers;
  assert.deepEqual(job?.args.slice(1), ['cri-resize-shim-installer', 'cri-resize-shim-canary']);
}

async function checkAnnotations(render: Render): Promise<void> {
  const manifests = await render({ annotations: { enabled: true }, config: { logLevel: 'debug' } });
  const of = (kind: string, name: string): Manifest => {
    const found = manifests.find(({ kind: other, metadata }) => other === kind && metadata.name === name);
    assert.ok(found !== undefined, `${kind} ${name} is not rendered`);
    return found;
  };
  const documented = manifestsOf(readFileSync('deploy/rbac.yaml', 'utf8'));
  const rights = (all: readonly Manifest[]): unknown => all.find(({ kind }) => kind === 'ClusterRole')?.['rules'];
  assert.deepEqual(of('ClusterRole', 'cri-resize-shim')['rules'], rights(documented));
  const { metadata, type } = of('Secret', 'cri-resize-shim-token');
  assert.equal(type, 'kubernetes.io/service-account-token');
  assert.equal(
    metadata.annotations?.['kubernetes.io/service-account.name'],
    of('ServiceAccount', 'cri-resize-shim').metadata.name,
  );
  const { data } = of('ConfigMap', 'cri-resize-shim') as unknown as { data: Record<string, string> };
  assert.match(data['config.yaml'] ?? '', /\nkubeconfig: \/var\/lib\/cri-resize-shim-installer\/kubeconfig\n/);
  const { containers, volumes } = daemonSet(manifests).spec.template.spec;
  const { shimCredentials } = readOptions(containers[0]!.args);
  const mount = containers[0]!.volumeMounts.find(({ mountPath }) => mountPath === shimCredentials);
  const volume = volumes.find(({ name }) => name === mount?.name) as { secret?: { secretName: string } } | undefined;
  assert.equal(volume?.secret?.secretName, 'cri-resize-shim-token');
}

async function checkViewer(render: Render): Promise<void> {
  const isOurs = ({ metadata }: Manifest): boolean => metadata.name === 'cri-resize-shim-viewer';
  const rendered = (await render({ viewer: { enabled: true } })).filter(isOurs);
  assert.deepEqual(normalized(rendered), normalized(manifestsOf(readFileSync('deploy/viewer.yaml', 'utf8'))));
  assert.deepEqual((await render()).filter(isOurs), []);
}

async function checkPodMonitor(render: Render): Promise<void> {
  const manifests = await render({ podMonitor: { enabled: true, port: 9999, labels: { release: 'prometheus' } } });
  const monitor = manifests.find(({ kind }) => kind === 'PodMonitor') as unknown as Manifest & {
    spec: {
      selector: { matchExpressions: { key: string; values: string[] }[] };
      podMetricsEndpoints: { port: string; relabelings: { targetLabel: string }[]; authorization?: object }[];
    };
  };
  assert.equal(monitor.metadata.labels?.['release'], 'prometheus');
  const { template } = daemonSet(manifests).spec;
  for (const { key, values } of monitor.spec.selector.matchExpressions)
    assert.ok(values.includes(template.metadata.labels?.[key] ?? ''));
  const [endpoint] = monitor.spec.podMetricsEndpoints;
  assert.deepEqual(
    endpoint?.relabelings.map(({ targetLabel }) => targetLabel),
    ['job', 'instance'],
  );
  const [container] = template.spec.containers;
  assert.deepEqual(container?.['ports'], [{ name: endpoint.port, containerPort: 9999 }]);
  assert.equal(readOptions(container.args).metricsPort, 9999);
  assert.equal(endpoint.authorization, undefined);
  const credentials = { secretName: 'shim-metrics', key: 'token' };
  const config = { metricsTokenFile: '/etc/token' };
  const withToken = await render({ podMonitor: { enabled: true, credentials }, config });
  const [scraped] = (withToken.find(({ kind }) => kind === 'PodMonitor') as typeof monitor).spec.podMetricsEndpoints;
  assert.deepEqual(scraped?.authorization, { type: 'Bearer', credentials: { name: 'shim-metrics', key: 'token' } });
  const map = manifests.find(({ kind }) => kind === 'ConfigMap') as unknown as { data: Record<string, string> };
  assert.match(map.data['config.yaml'] ?? '', /\nmetricsBind: unix:\/\/\/run\/cri-resize-shim\/metrics.sock\n/);
}

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
  [{ podLabels: { 'app.kubernetes.io/name': 'x' } }, /podLabels/],
  [{ commonLabels: { 'app.kubernetes.io/name': 'x' } }, /commonLabels/],
  [{ nodeSelector: { 'kubernetes.io/os': 'linux' } }, /nodeSelector/],
  [{ nodeSelector: { 'cri-resize-shim.io/install': 'true' } }, /nodeSelector/],
  [{ flags: ['--x'] }, /flags/],
  [{ terminationGracePeriodSeconds: 0 }, /terminationGracePeriodSeconds/],
  [{ namespace: 'x' }, /namespace/],
  [{ namespaceOverride: 'A' }, /namespaceOverride/],
  [{ rollout: { parallel: 1 } }, /rollout/],
  [{ minReadySeconds: -1 }, /minReadySeconds/],
  [{ canary: { config: { logLevel: 'loud' } } }, /logLevel/],
  [{ label: { uninstallValue: 'true' } }, /uninstallValue/],
  [{ nodeSelector: { a: 'b' }, canary: { nodeSelector: { a: 'c' } } }, /canary\.nodeSelector/],
  [{ canary: { nodeSelector: { 'cri-resize-shim.io/install': 'true' } } }, /nodeSelector/],
  [
    {
      canary: { nodeSelector: { pool: 'a' } },
      affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [] } } },
    },
    /canary\.nodeSelector/,
  ],
  [{ affinity: { nodes: {} } }, /affinity/],
  [{ podAnnotations: { a: 1 } }, /podAnnotations/],
  [{ podMonitor: { port: 70_000 } }, /port/],
  [{ podMonitor: { enabled: true }, config: { metricsBind: '127.0.0.1:9467' } }, /metricsBind/],
  [{ restore: { timeoutSeconds: 1 } }, /timeoutSeconds/],
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
    label: { key: 'example.com/shim', value: 'yes', uninstallValue: 'no' },
    config: { logLevel: 'debug', metricsBind: '127.0.0.1:9467', metricsTokenFile: '/etc/token' },
    ...{ kubeletUnit: 'k3s.service', timeout: '5m' },
    ...{ repairDrift: true, minReadySeconds: 5 },
    ...{ nodeSelector: { pool: 'a' }, affinity: { nodeAffinity: { x: 1 } }, serviceAccount: { name: 'sa' } },
    ...{ daemonSetAnnotations: { a: '1' }, podAnnotations: { b: '2' }, podLabels: { c: '3' }, revisionHistoryLimit: 3 },
    ...{ terminationGracePeriodSeconds: 90, maxUnavailable: '100%', priorityClassName: 'high' },
    tolerations: [{ key: 'a', operator: 'Exists' }],
    resources: { limits: { memory: '1Gi' } },
  });
  const namespaces = manifests.map(({ metadata }) => metadata.namespace).filter((name) => name !== undefined);
  assert.deepEqual([...new Set(namespaces)].toSorted(), ['elsewhere']);
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

  const [set, removal] = manifests.filter(isDaemonSet) as [DaemonSet, DaemonSet];
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
  const { nodeSelector: removedFrom, containers: removing } = removal.spec.template.spec;
  assert.deepEqual(removedFrom, { ...nodeSelector, 'example.com/shim': 'no' });
  assert.deepEqual(removing[0]!.env[1], { name: 'INSTALLER_MODE', value: 'uninstall' });
  assert.equal(readOptions(removing[0]!.args).kubeletUnit, 'k3s.service');
  const { labels = {}, annotations: noted = {} } = set.spec.template.metadata;
  assert.deepEqual([labels['c'], noted['b']], ['3', '2']);
  assert.deepEqual(tolerations, [{ key: 'a', operator: 'Exists' }]);
  assert.deepEqual([priorityClassName, imagePullSecrets], ['high', [{ name: 'key' }]]);
  const [installer] = containers;
  assert.ok(installer !== undefined);
  assert.deepEqual([installer.image, installer['imagePullPolicy']], ['registry.example.com/shim:9', 'Always']);
  assert.deepEqual(installer.resources, { requests: { cpu: '10m', memory: '64Mi' }, limits: { memory: '1Gi' } });
  const options = readOptions(installer.args);
  const { kubeletUnit, timeout, repairDrift } = options;
  assert.deepEqual([kubeletUnit, timeout, repairDrift], ['k3s.service', '5m', true]);
  assert.deepEqual([pod.terminationGracePeriodSeconds, set.spec.minReadySeconds], [90, 5]);

  const digest = `sha256:${'a'.repeat(64)}`;
  const byDigest = daemonSet(await render({ image: { repository: 'registry.example.com/shim', tag: '9', digest } }));
  assert.deepEqual(byDigest.spec.template.spec.containers[0]?.image, `registry.example.com/shim@${digest}`);

  // Only a change of the configuration replaces the pods.
  const annotations = async (config: object): Promise<unknown> =>
    daemonSet(await render({ config })).spec.template.metadata.annotations;
  assert.deepEqual(await annotations({}), await annotations({}));
  assert.notDeepEqual(await annotations({}), await annotations({ logLevel: 'debug' }));
}
