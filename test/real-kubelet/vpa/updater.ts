import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { manifestsOf } from '../../deploy/manifests.ts';
import { type Cluster, until } from '../cluster.ts';

const programs = process.env['VPA_PROGRAMS'] ?? '';
const logs = process.env['NODE_OUT'] ?? '/tmp';

export const AUTOSCALERS = '/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers';

/** Adds the resource VerticalPodAutoscaler to the API. */
export async function defineAutoscalers(cluster: Cluster): Promise<void> {
  for (const manifest of manifestsOf(readFileSync(join(programs, 'crd.yaml'), 'utf8')))
    await cluster.api.create('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', manifest);
  await until(() => cluster.api.get(AUTOSCALERS).then(() => true), 'the API of VerticalPodAutoscaler');
}

/** The updater of the Vertical Pod Autoscaler. Its first round is one interval after its start. */
export class Updater {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** @param interval of its rounds, in seconds */
  static start(cluster: Cluster, interval: number): Updater {
    const log = openSync(join(logs, `updater-${interval}.log`), 'a');
    const args = [
      ...['--kubeconfig', cluster.kubeconfig, `--updater-interval=${interval}s`, '--v=5'],
      // Nothing creates evicted pods again, so there is no admission controller to wait for.
      '--use-admission-controller-status=false',
      // All replicas in one round. Without it, the updater takes half of them, and the others in the next rounds.
      '--in-place-skip-disruption-budget',
    ];
    const child = spawn(join(programs, 'bin', 'vpa-updater'), args, { stdio: ['ignore', log, log] });
    closeSync(log);
    return new Updater(child);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGTERM');
    await once(this.#child, 'exit');
  }
}
