import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { stringify } from 'yaml';
import type { Manifest } from '../deploy/manifests.ts';
import { CONFIG, UNIT } from '../support/e2e/kubelet-unit.ts';
import { Api } from './api.ts';

export const NODE = 'node1';

/** The part of the spec that each pod has: no scheduler, no network plugin and no controller manager runs. */
export const POD_ON_NODE = {
  nodeName: NODE,
  hostNetwork: true,
  automountServiceAccountToken: false,
  enableServiceLinks: false,
  terminationGracePeriodSeconds: 1,
  tolerations: [{ operator: 'Exists' }],
};
/** A separate address on lo, because neither kubelet nor the API server accept 127.0.0.1 as theirs. */
const ADDRESS = '10.1.1.1';
const SERVER = `https://${ADDRESS}:443`;
/**
 * The address of the service `kubernetes`, by which pods find the API server. No service proxy runs here, so the server
 * itself has this address.
 */
const SERVICE_ADDRESS = '10.0.0.1';
const TOKEN = 'of-the-tests';

/** In the node with Debian's kernel, qemu may translate every instruction. */
export const slowness = process.env['NODE_KERNEL'] === 'debian' ? 5 : 1;

const programs = process.env['KUBERNETES_PROGRAMS'] ?? '';
const logs = process.env['NODE_OUT'] ?? '/tmp';

export interface ClusterOptions {
  readonly hasAccounts?: boolean;
  readonly serverFlags?: readonly string[];
  readonly featureGates?: Readonly<Record<string, boolean>>;
}

/** etcd, kube-apiserver and kubelet on this node. kubelet uses the shim as its runtime. */
export class Cluster {
  readonly api = new Api(SERVER, TOKEN);
  /** kubelet's own server. */
  readonly kubelet = new Api(`https://${ADDRESS}:10250`, TOKEN);
  readonly #processes: ChildProcess[] = [];
  #kubelet: ChildProcess | undefined;

  private constructor(
    readonly folder: string,
    private readonly featureGates: Readonly<Record<string, boolean>>,
  ) {}

  /** The kubeconfig of kubelet, with all rights. */
  get kubeconfig(): string {
    return join(this.folder, 'kubeconfig');
  }

  /** Writes the kubeconfig of a service account. */
  async kubeconfigOf(namespace: string, account: string): Promise<string> {
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`;
    const { status } = await this.api.create<{ status: { token: string } }>(path, {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: { expirationSeconds: 3600 },
    });
    return this.#writeKubeconfig(`kubeconfig-${account}`, status.token);
  }

  /** The certificate that the API server has created for itself. */
  certificate(): string {
    return readFileSync(join(this.folder, 'certificates', 'apiserver.crt'), 'utf8');
  }

  /** Creates an object from a manifest. Rejects if the API server does not know one of its fields. */
  async apply(manifest: Manifest): Promise<void> {
    const { apiVersion, kind, metadata } = manifest;
    const group = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const namespace = metadata.namespace === undefined ? '' : `/namespaces/${metadata.namespace}`;
    await this.api.create(`${group}${namespace}/${kind.toLowerCase()}s?fieldValidation=Strict`, manifest);
  }

  /** Returns whether a service account has this right. */
  async mayDo(account: string, attributes: Readonly<Record<string, string>>): Promise<boolean> {
    const [namespace = ''] = account.split('/');
    const user = `system:serviceaccount:${account.replace('/', ':')}`;
    const groups = ['system:authenticated', 'system:serviceaccounts', `system:serviceaccounts:${namespace}`];
    const path = '/apis/authorization.k8s.io/v1/subjectaccessreviews';
    const { status } = await this.api.create<{ status: { allowed: boolean } }>(path, {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      spec: { user, groups, resourceAttributes: attributes },
    });
    return status.allowed;
  }

  /**
   * Starts only the control plane. {@link startKubelet} or {@link startKubeletUnit} add kubelet.
   * @param hasAccounts whether pods get the token of their account. The account has to exist then, because no
   * controller manager creates it
   * @param serverFlags of the API server, in addition to those of every test
   * @param featureGates of the API server and of kubelet
   */
  static async start(
    folder: string,
    { hasAccounts = false, serverFlags = [], featureGates = {} }: ClusterOptions = {},
  ): Promise<Cluster> {
    mkdirSync(folder, { recursive: true });
    const cluster = new Cluster(folder, featureGates);
    prepareNode(folder);
    cluster.#writeFiles();
    cluster.#run('etcd', ['--data-dir', join(folder, 'etcd'), '--unsafe-no-fsync']);
    cluster.#run('kube-apiserver', [
      '--etcd-servers=http://127.0.0.1:2379',
      '--service-cluster-ip-range=10.0.0.0/24',
      '--secure-port=443',
      `--advertise-address=${ADDRESS}`,
      `--cert-dir=${join(folder, 'certificates')}`,
      `--token-auth-file=${join(folder, 'tokens.csv')}`,
      '--service-account-issuer=https://tests',
      `--service-account-key-file=${join(folder, 'account.key')}`,
      `--service-account-signing-key-file=${join(folder, 'account.key')}`,
      '--authorization-mode=RBAC',
      // As in every Kubernetes distribution.
      '--allow-privileged=true',
      ...(hasAccounts ? [] : ['--disable-admission-plugins=ServiceAccount']),
      '--endpoint-reconciler-type=none',
      ...Object.entries(featureGates).map(([gate, isOn]) => `--feature-gates=${gate}=${isOn}`),
      ...serverFlags,
    ]);
    await until(async () => (await cluster.api.get<string>('/readyz')) === 'ok', 'the API server to be ready', 300);
    const namespaces = ['default', 'kube-system'].map((name) => `/api/v1/namespaces/${name}`);
    // The API server creates the namespaces itself, with a delay.
    for (const path of namespaces) await until(() => cluster.api.get(path).then(() => true), path);
    return cluster;
  }

  /**
   * @param endpoint of the runtime: `unix:///...`
   * @param settings fields of KubeletConfiguration, in addition to those of every test
   */
  async startKubelet(endpoint: string, settings: Readonly<Record<string, unknown>> = {}): Promise<void> {
    const file = join(this.folder, 'kubelet.yaml');
    const featureGates = { ...this.featureGates, ...(settings['featureGates'] as object | undefined) };
    writeFileSync(file, kubeletConfig(endpoint, 'cgroupfs', { ...settings, featureGates }));
    const kubelet = this.#run('kubelet', this.#kubeletFlags(file), ownCgroup());
    this.#kubelet = kubelet;
    const ended = once(kubelet, 'exit').then(([code]) => {
      throw new Error(`kubelet has ended with code ${String(code)}; see kubelet.log`);
    });
    // The promise also rejects when kubelet is stopped.
    ended.catch(() => undefined);
    await Promise.race([until(() => this.isNodeReady(), 'the node to be ready', 120), ended]);
  }

  /** Stops kubelet. Pods keep running, and the API server still reports the node as ready. */
  async stopKubelet(): Promise<void> {
    if (this.#kubelet !== undefined) await killed(this.#kubelet);
  }

  /** Starts kubelet as a systemd unit, with its configuration where most distributions have it. */
  async startKubeletUnit(endpoint: string): Promise<void> {
    mkdirSync(dirname(CONFIG), { recursive: true });
    writeFileSync(CONFIG, kubeletConfig(endpoint, 'systemd'));
    const command = [join(programs, 'kubelet'), ...this.#kubeletFlags(CONFIG)].join(' ');
    const log = `append:${join(logs, 'kubelet.log')}`;
    const service = [`ExecStart=${command}`, 'Restart=always', `StandardOutput=${log}`, `StandardError=${log}`];
    writeFileSync(UNIT, ['[Unit]', 'StartLimitIntervalSec=0', '[Service]', ...service, ''].join('\n'));
    execFileSync('systemctl', ['daemon-reload']);
    // The kubelet of an earlier cluster may still run.
    execFileSync('systemctl', ['restart', 'kubelet.service']);
    await until(() => this.isNodeReady(), 'the node to be ready', 120);
  }

  #kubeletFlags(config: string): readonly string[] {
    return [
      ...['--config', config, '--kubeconfig', this.kubeconfig],
      ...['--hostname-override', NODE, '--node-ip', ADDRESS, '-v', '4'],
    ];
  }

  async isNodeReady(): Promise<boolean> {
    const { status } = await this.api.get<{ status: { conditions: { type: string; status: string }[] } }>(
      `/api/v1/nodes/${NODE}`,
    );
    return status.conditions.some(({ type, status: is }) => type === 'Ready' && is === 'True');
  }

  async stop(): Promise<void> {
    for (const child of this.#processes.toReversed()) await killed(child);
  }

  #writeFiles(): void {
    const write = (name: string, content: string): void => writeFileSync(join(this.folder, name), content);
    write('tokens.csv', `${TOKEN},tests,1,system:masters\n`);
    execFileSync('openssl', ['genrsa', '-out', join(this.folder, 'account.key'), '2048'], { stdio: 'ignore' });
    this.#writeKubeconfig('kubeconfig', TOKEN);
  }

  #writeKubeconfig(name: string, token: string): string {
    const file = join(this.folder, name);
    const text = JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'tests', cluster: { server: SERVER, 'insecure-skip-tls-verify': true } }],
      contexts: [{ name: 'tests', context: { cluster: 'tests', user: 'tests' } }],
      'current-context': 'tests',
      users: [{ name: 'tests', user: { token } }],
    });
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  }

  /** @param before a command that runs the program, if any */
  #run(name: string, args: readonly string[], before: readonly string[] = []): ChildProcess {
    const log = openSync(join(logs, `${name}.log`), 'a');
    const [command = '', ...rest] = [...before, join(programs, name), ...args];
    const child = spawn(command, rest, { cwd: this.folder, stdio: ['ignore', log, log] });
    this.#processes.push(child);
    return child;
  }
}

/**
 * Returns a command that runs another command in a cgroup. kubelet checks for memory.swap.max in its own cgroup to find
 * out whether it can limit swap, and the root cgroup does not have this file.
 */
function ownCgroup(): readonly string[] {
  const folder = '/sys/fs/cgroup/kubelet';
  mkdirSync(folder, { recursive: true });
  return ['sh', '-c', 'echo $$ >"$0/cgroup.procs" && exec "$@"', folder];
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

const kubeletConfig = (
  endpoint: string,
  cgroupDriver: 'cgroupfs' | 'systemd',
  settings: Readonly<Record<string, unknown>> = {},
): string =>
  stringify({
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: 'AlwaysAllow' },
    cgroupDriver,
    containerRuntimeEndpoint: endpoint,
    failSwapOn: false,
    // The host's disk and memory must not cause evictions.
    evictionHard: { 'memory.available': '0%', 'nodefs.available': '0%', 'imagefs.available': '0%' },
    makeIPTablesUtilChains: false,
    resolvConf: '',
    syncFrequency: '5s',
    ...settings,
  });

/**
 * Creates the parts of a machine that User Mode Linux lacks, unless an earlier cluster of this node has created them: a
 * clock speed, an address, a default route.
 */
function prepareNode(folder: string): void {
  const cpus = readFileSync('/proc/cpuinfo', 'utf8');
  if (!/^cpu MHz/m.test(cpus)) {
    const file = join(folder, 'cpuinfo');
    writeFileSync(file, cpus.replaceAll(/^processor.*$/gm, '$&\ncpu MHz\t\t: 2000.000'));
    execFileSync('mount', ['--bind', file, '/proc/cpuinfo']);
  }
  execFileSync('hostname', [NODE]);
  for (const address of [ADDRESS, SERVICE_ADDRESS])
    execFileSync('ip', ['addr', 'replace', `${address}/32`, 'dev', 'lo']);
  execFileSync('ip', ['route', 'replace', 'default', 'dev', 'lo']);
}

/** Polls a condition that sends no event. Rejects if it does not hold within the given number of seconds. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  seconds = 60,
  everyMs = 250,
): Promise<void> {
  const deadline = Date.now() + seconds * 1000 * slowness;
  let last: unknown;
  for (;;) {
    try {
      if (await condition()) return;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline) throw new Error(`timed out after ${seconds} s of waiting for ${what}`, { cause: last });
    await delay(everyMs);
  }
}
