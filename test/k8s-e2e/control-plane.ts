import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { Cluster, NODE, until } from '../real-kubelet/cluster.ts';

/** The controllers of what the specs create: namespaces, accounts, and pods in sets. */
const controllers = [
  'namespace',
  'serviceaccount',
  'root-ca-certificate-publisher',
  'node-lifecycle',
  'pod-garbage-collector',
  'garbage-collector',
  'resourcequota',
  'replicationcontroller',
  'replicaset',
  'deployment',
];

export interface ControlPlaneOptions {
  /** For certificates, keys and data. */
  readonly folder: string;
  /** The programs of the scheduler and the controller manager. */
  readonly programs: string;
  /** For logs. */
  readonly logs: string;
}

/** A cluster whose pods are scheduled, and whose namespaces get accounts and are removed. */
export class ControlPlane {
  readonly #children: ChildProcess[] = [];

  private constructor(
    readonly cluster: Cluster,
    private readonly options: ControlPlaneOptions,
  ) {}

  static async start(options: ControlPlaneOptions): Promise<ControlPlane> {
    const cluster = await Cluster.start(options.folder, {
      hasAccounts: true,
      // No DNS resolves the name of the node, which the API server would use by default.
      serverFlags: ['--kubelet-preferred-address-types=InternalIP'],
      // Its specs fail without it. It changes nothing for pods without memory-backed volumes.
      featureGates: { InPlacePodVerticalScalingMemoryBackedVolumes: true },
    });
    const plane = new ControlPlane(cluster, options);
    const common = ['--kubeconfig', cluster.kubeconfig, '--leader-elect=false', '--secure-port=0'];
    plane.#run('kube-scheduler', common);
    plane.#run('kube-controller-manager', [
      ...common,
      `--controllers=${controllers.map((name) => `${name}-controller`).join(',')}`,
      `--service-account-private-key-file=${join(options.folder, 'account.key')}`,
      `--root-ca-file=${join(options.folder, 'certificates', 'apiserver.crt')}`,
      // A node with one processor that runs everything may report late. Its pods must not be evicted.
      '--node-monitor-grace-period=10m',
    ]);
    return plane;
  }

  /** Starts kubelet. Resolves when pods can be scheduled. */
  async startKubelet(endpoint: string): Promise<void> {
    await this.cluster.startKubelet(endpoint);
    await until(
      async () => {
        const { spec } = await this.cluster.api.get<{ spec: { taints?: unknown[] } }>(`/api/v1/nodes/${NODE}`);
        return (spec.taints ?? []).length === 0;
      },
      'the node to lose its taints',
      120,
    );
    const account = '/api/v1/namespaces/default/serviceaccounts/default';
    await until(() => this.cluster.api.get(account).then(() => true), 'the account of pods', 120);
  }

  async stop(): Promise<void> {
    for (const child of this.#children.toReversed()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    await this.cluster.stop();
  }

  #run(name: string, args: readonly string[]): void {
    const log = openSync(join(this.options.logs, `${name}.log`), 'a');
    this.#children.push(spawn(join(this.options.programs, name), args, { stdio: ['ignore', log, log] }));
  }
}
