import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { readOptions } from '../../src/install/rollout/options.ts';
import { type Manifest, type Rule, daemonSet, keyOf, manifestsOf, normalized } from './manifests.ts';

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
  // A release may be in the namespace default, where the rights for events are.
  const names = all.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  assert.deepEqual([...new Set(names)], names);
  await checkRestore(render, all);
  await checkAnnotations(render);
  await checkPodMonitor(render);
  await checkViewer(render);
  const none = { rbac: { create: false }, serviceAccount: { create: false, name: 'mine' } };
  const bare = await render(none);
  assert.deepEqual(bare.map(({ kind }) => kind).toSorted(), ['ConfigMap', 'DaemonSet']);
  const withParts = await render({ ...none, annotations: { enabled: true }, podMonitor: { enabled: true } }, []);
  assert.deepEqual(withParts.map(({ kind }) => kind).toSorted(), [
    ...['ConfigMap', 'DaemonSet', 'Job', 'PodMonitor', 'Secret', 'ServiceAccount', 'ServiceAccount'],
  ]);
  assert.equal(daemonSet(bare).spec.template.spec.serviceAccountName, 'mine');
}

const hook = ({ metadata }: Manifest): string | undefined => metadata.annotations?.['helm.sh/hook'];

async function checkRestore(render: Render, all: readonly Manifest[]): Promise<void> {
  const hooks = all.filter((manifest) => hook(manifest) !== undefined);
  assert.deepEqual(hooks.map(({ kind }) => kind).toSorted(), [
    ...['ClusterRole', 'ClusterRoleBinding', 'Job', 'Role', 'RoleBinding', 'ServiceAccount'],
  ]);
  for (const manifest of hooks) {
    assert.equal(hook(manifest), 'pre-delete', keyOf(manifest));
    // Only what a failed Job needs stays for a look at it.
    assert.equal(manifest.metadata.annotations?.['helm.sh/hook-delete-policy'], 'before-hook-creation,hook-succeeded');
  }
  const rules = hooks.flatMap((manifest) => (manifest['rules'] as Rule[] | undefined) ?? []);
  assert.deepEqual(rules.map(({ resources, verbs }) => `${verbs.join(' ')}: ${resources.join(' ')}`).toSorted(), [
    'get list patch: nodes',
    'list: pods',
  ]);
  const job = hooks.find(({ kind }) => kind === 'Job') as unknown as {
    spec: {
      activeDeadlineSeconds: number;
      template: { spec: { containers: { command: string[]; args: string[]; image: string }[] } };
    };
  };
  const [container] = job.spec.template.spec.containers;
  const installer = daemonSet(all).spec.template.spec.containers[0];
  assert.deepEqual(container?.command, [...(installer?.command ?? []), 'restore']);
  assert.equal(container.image, installer?.image);
  assert.deepEqual(container.args, [
    ...['--namespace=$(NAMESPACE)', '--label=cri-resize-shim.io/install=true', '--portion=20'],
  ]);
  checkTimes(all, job.spec.activeDeadlineSeconds);
  const without = await render({ restore: { enabled: false } }, []);
  assert.ok(without.every((manifest) => hook(manifest) === undefined));
}

/** A pod has to end before the Job does, and the Job before Helm, or nobody says on which node the shim is left. */
function checkTimes(all: readonly Manifest[], job: number): void {
  const { terminationGracePeriodSeconds: pod, containers } = daemonSet(all).spec.template.spec;
  assert.equal(readOptions(containers[0]!.args).grace, pod * 1000);
  assert.ok(job >= pod + 600, `the Job has ${job} s, a pod ${pod} s`);
  for (const page of ['docs/kubernetes.md', 'docs/break-glass.md', 'deploy/helm/cri-resize-shim/README.md']) {
    const text = readFileSync(page, 'utf8');
    const [, minutes] = /helm uninstall cri-resize-shim -n cri-resize-shim --timeout (\d+)m\b/.exec(text) ?? [];
    assert.ok(Number(minutes) * 60 >= job + 300, `${page}: helm has ${minutes ?? 'no'} minutes, the Job ${job} s`);
  }
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
  const { shimCredentials, staging } = readOptions(containers[0]!.args);
  assert.equal(`${staging}/kubeconfig`, '/var/lib/cri-resize-shim-installer/kubeconfig');
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
      selector: { matchLabels: Record<string, string> };
      podMetricsEndpoints: { port: string; relabelings: { targetLabel: string }[]; authorization?: object }[];
    };
  };
  assert.equal(monitor.metadata.labels?.['release'], 'prometheus');
  const { template } = daemonSet(manifests).spec;
  for (const [name, value] of Object.entries(monitor.spec.selector.matchLabels))
    assert.equal(template.metadata.labels?.[name], value);
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
