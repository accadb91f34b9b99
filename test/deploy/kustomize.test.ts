import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { configKeys, schema } from '../../src/core/config/schema.ts';
import { version } from '../../src/core/config/version.ts';
import { readOptions } from '../../src/install/rollout/options.ts';
import { manifests, rights } from '../support/kubernetes/fake-api-server.ts';
import type { ValueSchema } from './config-schema.ts';
import { configurationSchema } from './config-schema.ts';
import type { DaemonSet, Manifest, Rule } from './manifests.ts';
import { isDaemonSet, keyOf, manifestsOf, prepareKubectl } from './manifests.ts';

describe('kustomizations', () => {
  /** Tests what Debian's kubectl renders from deploy/kustomize. test/e2e/install/installer.test.ts tests the pod. */

  let kubectl: string;
  let folder: string;
  let manifests: readonly Manifest[];
  let set: DaemonSet;
  const render = async (base: string): Promise<Manifest[]> =>
    manifestsOf((await execa(kubectl, ['kustomize', base])).stdout);

  beforeAll(async () => {
    kubectl = await prepareKubectl((line) => void process.stderr.write(`kubectl: ${line}\n`));
    folder = mkdtempSync(join(tmpdir(), 'kustomize-'));
    manifests = await render('deploy/kustomize');
    set = manifests.find(isDaemonSet)!;
  }, 900_000);

  afterAll(() => rmSync(folder, { recursive: true }));

  const pod = (): DaemonSet['spec']['template']['spec'] => set.spec.template.spec;
  const installer = () => pod().containers[0]!;
  const named = (kind: string, namespace = ''): Manifest =>
    manifests.find((manifest) => manifest.kind === kind && (manifest.metadata.namespace ?? '') === namespace)!;

  describe('deploy/kustomize', () => {
    test('deploy/kustomize renders exactly the expected objects, in versions that Kubernetes 1.27 and later serve', () => {
      const apiVersions: Readonly<Record<string, string>> = {
        Namespace: 'v1',
        ServiceAccount: 'v1',
        ConfigMap: 'v1',
        DaemonSet: 'apps/v1',
        ...Object.fromEntries(
          ['ClusterRole', 'ClusterRoleBinding'].map((kind) => [kind, 'rbac.authorization.k8s.io/v1']),
        ),
      };
      expect(manifests.map(keyOf).toSorted()).toEqual([
        'ClusterRole /cri-resize-shim-installer',
        'ClusterRoleBinding /cri-resize-shim-installer',
        expect.stringMatching(/^ConfigMap cri-resize-shim\/cri-resize-shim-[a-z0-9]{10}$/),
        'DaemonSet cri-resize-shim/cri-resize-shim-installer',
        'DaemonSet cri-resize-shim/cri-resize-shim-uninstaller',
        'Namespace /cri-resize-shim',
        'ServiceAccount cri-resize-shim/cri-resize-shim-installer',
      ]);
      for (const { kind, apiVersion } of manifests) expect(apiVersion, kind).toBe(apiVersions[kind]);
    });

    test('the namespace allows privileged pods', () => {
      expect(named('Namespace').metadata.labels).toMatchObject({ 'pod-security.kubernetes.io/enforce': 'privileged' });
    });

    test('every object has the labels that Kubernetes recommends', () => {
      for (const manifest of manifests)
        expect(manifest.metadata.labels, keyOf(manifest)).toMatchObject({
          'app.kubernetes.io/name': expect.stringMatching(/^cri-resize-shim-(un)?installer$/) as unknown,
          'app.kubernetes.io/component': expect.stringMatching(/^(un)?installer$/) as unknown,
          'app.kubernetes.io/part-of': 'cri-resize-shim',
        });
    });

    test('the DaemonSet selects its own pods, which run on all labelled nodes regardless of taints', () => {
      const { selector, template, updateStrategy, minReadySeconds } = set.spec;
      expect(template.metadata.labels).toMatchObject(selector.matchLabels);
      expect(updateStrategy).toEqual({ type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 1 } });
      // Longer than node-monitor-grace-period, for which the API server reports the status of a dead kubelet.
      expect(minReadySeconds).toBeGreaterThan(50);
      const { serviceAccountName, nodeSelector, tolerations, priorityClassName } = pod();
      expect(serviceAccountName).toBe(named('ServiceAccount', 'cri-resize-shim').metadata.name);
      expect(nodeSelector).toEqual({ 'kubernetes.io/os': 'linux', 'cri-resize-shim.io/install': 'true' });
      expect([tolerations, priorityClassName]).toEqual([[{ operator: 'Exists' }], 'system-node-critical']);
      expect(installer().image).toBe(`cri-resize-shim:${version}`);
    });

    test('install: the installer mounts one folder of the host and no socket of a runtime', () => {
      const { hostPID, hostNetwork, hostIPC, volumes } = pod();
      expect([hostPID, hostNetwork, hostIPC]).toEqual([true, undefined, undefined]);
      expect(volumes.flatMap(({ hostPath }) => (hostPath === undefined ? [] : [hostPath]))).toEqual([
        { path: '/var/lib/cri-resize-shim-installer', type: 'DirectoryOrCreate' },
      ]);
      expect(installer().securityContext).toEqual({ privileged: true, readOnlyRootFilesystem: true });
      expect(
        installer()
          .volumeMounts.map(({ name }) => name)
          .toSorted(),
      ).toEqual(volumes.map(({ name }) => name).toSorted());
      expect(JSON.stringify(manifests)).not.toMatch(/containerd|docker|\.sock/);
    });

    test('the DaemonSet starts the installer of the image with valid flags that match the manifest', () => {
      const { command, args, env, readinessProbe, volumeMounts } = installer();
      const [, entry = ''] = /COPY --from=build \/build\/dist\/(\S+) /.exec(readFileSync('Dockerfile', 'utf8')) ?? [];
      expect(command).toEqual(['node', `/usr/local/lib/cri-resize-shim/dist/${entry}`]);
      const known = env.map(({ name }) => `$(${name})`);
      for (const [variable] of args.join(' ').matchAll(/\$\(\w+\)/g)) expect(known).toContain(variable);
      const options = readOptions(args);
      const mode = (one: DaemonSet): unknown => one.spec.template.spec.containers[0]!.env.at(-1);
      expect(mode(set)).toEqual({ name: 'INSTALLER_MODE', value: 'install' });
      const removal = manifests.filter(isDaemonSet)[1]!;
      expect(mode(removal)).toEqual({ name: 'INSTALLER_MODE', value: 'uninstall' });
      expect(removal.spec.template.spec.nodeSelector).toEqual({
        ...pod().nodeSelector,
        'cri-resize-shim.io/install': 'false',
      });
      expect(readinessProbe.exec.command.at(-1)).toBe('/run/cri-resize-shim-installer/state');
      const folders = volumeMounts.map(({ mountPath }) => mountPath);
      expect(folders.toSorted()).toEqual([
        options.config.replace(/\/[^/]+$/, ''),
        '/run/cri-resize-shim-installer',
        '/var/lib/cri-resize-shim-installer',
      ]);
      expect(folders).not.toContain('/');
    });

    test('the configuration is empty, and an overlay can replace it together with the pods, and pin the image by digest', async () => {
      const { data } = named('ConfigMap', 'cri-resize-shim') as unknown as { data: Record<string, string> };
      expect(parse(data['config.yaml']!)).toBeNull();
      const [base, overlay] = [join(folder, 'base'), join(folder, 'overlay')];
      cpSync('deploy/kustomize', base, { recursive: true });
      mkdirSync(overlay);
      const page = readFileSync('docs/kubernetes.md', 'utf8');
      const [, text = ''] = /```yaml\n(apiVersion: kustomize[\s\S]*?)```/.exec(page) ?? [];
      const digest = `sha256:${'a'.repeat(64)}`;
      const example = text.replace('sha256:...', digest);
      // In Debian's version, `resources` does not accept a folder.
      writeFileSync(
        join(overlay, 'kustomization.yaml'),
        example.replace(/resources:\n {2}- \S+\/deploy\/kustomize\n/, 'bases:\n  - ../base\n'),
      );
      writeFileSync(join(overlay, 'config.yaml'), 'logLevel: debug\n');
      const changed = await render(overlay);
      const map = changed.find(({ kind }) => kind === 'ConfigMap') as unknown as {
        metadata: { name: string };
        data: object;
      };
      expect(map.data).toEqual({ 'config.yaml': 'logLevel: debug\n' });
      const other = changed.find(isDaemonSet)!.spec.template.spec;
      expect(other.volumes.flatMap(({ configMap }) => configMap ?? [])).toEqual([{ name: map.metadata.name }]);
      expect(map.metadata.name).not.toBe(named('ConfigMap', 'cri-resize-shim').metadata.name);
      expect(other.containers[0]!.image).toBe(`registry.example.com/cri-resize-shim@${digest}`);
    });

    test('deploy/kustomize renders every file of its folder', () => {
      const { resources } = parse(readFileSync('deploy/kustomize/kustomization.yaml', 'utf8')) as {
        resources: string[];
      };
      expect(readdirSync(resolve('deploy/kustomize')).toSorted()).toEqual(
        [...resources, 'config.yaml', 'kustomization.yaml'].toSorted(),
      );
    });
  });

  test('install: the installer may only read nodes', () => {
    const rules = manifests.flatMap((manifest) => (manifest['rules'] as Rule[] | undefined) ?? []);
    expect(rules).toEqual([{ apiGroups: [''], resources: ['nodes'], verbs: ['get'] }]);
    const [binding, ...more] = manifests.filter(({ kind }) => kind.endsWith('Binding'));
    expect([more, binding?.['subjects']]).toEqual([
      [],
      [{ kind: 'ServiceAccount', name: pod().serviceAccountName, namespace: set.metadata.namespace }],
    ]);
  });
});

const FILE = 'deploy/helm/cri-resize-shim/values.schema.json';
interface ChartSchema {
  readonly properties: Record<string, unknown>;
}
const chart = (): ChartSchema => JSON.parse(readFileSync(FILE, 'utf8')) as ChartSchema;

test('the chart has the schema of the configuration file for its value "config"', () => {
  if (process.env['UPDATE_DOCS'] === '1') {
    const { properties, ...rest } = chart();
    const updated = { ...rest, properties: { ...properties, config: configurationSchema() } };
    writeFileSync(FILE, `${JSON.stringify(updated, undefined, 2)}\n`);
  }
  expect(chart().properties['config'], 'run the test with UPDATE_DOCS=1, and format the file').toEqual(
    JSON.parse(JSON.stringify(configurationSchema())),
  );
});

describe('schema of the configuration values', () => {
  const properties = configurationSchema()['properties'] as Readonly<Record<string, ValueSchema>>;

  /** Whether a value is valid, for the keywords that the schema uses. */
  function isValid(value: unknown, of: ValueSchema): boolean {
    const { type, pattern, minimum, maximum } = of as {
      type?: string | string[];
      pattern?: string;
      minimum?: number;
      maximum?: number;
    };
    const allowed = of['enum'] as readonly unknown[] | undefined;
    if (allowed !== undefined) return allowed.includes(value);
    const found = typeof value === 'number' ? 'integer' : typeof value;
    if (type !== undefined && ![type].flat().includes(found)) return false;
    if (typeof value === 'string') return pattern === undefined || new RegExp(pattern).test(value);
    return typeof value !== 'number' || (value >= (minimum ?? -Infinity) && value <= (maximum ?? Infinity));
  }

  const values: readonly unknown[] = [
    ...[true, false, 'true', 'nope', 'no', '', ' ', 0, 1, 30, -1, 4_194_304, 4_194_305, 600],
    ...['/', '/run/a.sock', 'unix:///run/a.sock', 'unix:/run/a.sock', 'unix://run/a.sock', 'a.sock', '/run/a/'],
    ...['tcp://127.0.0.1:1', '127.0.0.1:9467', '0.0.0.0:9467', 'localhost:1', '[::1]:1', '[::]:1', '127.0.0.1'],
    ...['0600', '600', '0680', '06000', 'rw', '30s', '1m30s', '0', '1.5h', '-1s', '30'],
    ...['info', 'inf', 'auto', 'never', 'systemd', 'cgroupfs', 'in-cluster', 'node-1.example.org', 'Node', 'a,b'],
    ...['1', '4194304', '1/root'],
  ];

  test.each(configKeys)('the schema and the shim accept the same values of %s', (key) => {
    const differing = values.filter(
      (value) => isValid(value, properties[key]!) !== schema.shape[key].safeParse(value).success,
    );
    expect(differing).toEqual([]);
  });

  test('the schema rejects keys that are not settings', () => {
    expect(configurationSchema()).toMatchObject({ additionalProperties: false });
    expect(Object.keys(properties)).toEqual(['apiVersion', 'kind', ...configKeys]);
  });
});

test("the chart's README lists every value", () => {
  const page = readFileSync('deploy/helm/cri-resize-shim/README.md', 'utf8');
  const listed = [...page.matchAll(/^\| (`[^|]*) \|/gm)].flatMap(([, names = '']) =>
    [...names.matchAll(/`(\w+)[.\w]*`/g)].map(([, name]) => name!),
  );
  const values = Object.keys(chart().properties).filter((name) => name !== 'global');
  expect([...new Set(listed)].toSorted()).toEqual(values.toSorted());
  expect(Object.keys(parse(readFileSync('deploy/helm/cri-resize-shim/values.yaml', 'utf8')) as object)).toEqual(values);
});

test('KEP-6030: the role for annotations in Kubernetes allows to list and watch pods, get nodes and create events only', () => {
  expect([...rights].sort()).toEqual(['create events.events.k8s.io', 'get nodes', 'list pods', 'watch pods']);
});

test('the role is bound only to the service account of the shim', () => {
  const named = (kind: string) => manifests.filter((manifest) => manifest.kind === kind);
  const [role, account, binding] = [named('ClusterRole'), named('ServiceAccount'), named('ClusterRoleBinding')];
  expect([role.length, account.length, binding.length, manifests.length]).toEqual([1, 1, 1, 3]);
  expect(binding[0]?.roleRef).toMatchObject({ kind: 'ClusterRole', name: role[0]?.metadata.name });
  expect(binding[0]?.subjects).toEqual([{ kind: 'ServiceAccount', ...account[0]?.metadata }]);
});
