import type { Api } from '../api.ts';
import { NODE } from '../cluster.ts';

/** Kubernetes considers a node lost if its Lease is not renewed for this time (--node-monitor-grace-period of 1.36). */
const GRACE_MS = 50_000;

interface WatchedNode {
  readonly metadata: { readonly name: string };
  readonly status: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}
interface WatchedLease {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly renewTime?: string };
}

/**
 * Watches the condition Ready of the node, and the heartbeats of its kubelet, from its start to its end: what the
 * controllers of a cluster see. No controller manager runs here, so a kubelet that is silent is judged by its Lease.
 */
export class ReadyWatch {
  /** Each time at which the node was not Ready, or did not report for too long. */
  readonly breaks: string[] = [];
  /** Changes of the node and heartbeats that were seen. */
  seen = 0;
  readonly #over = new AbortController();
  #renewed: number;
  readonly #work: Promise<void>;

  /** @param now in milliseconds */
  constructor(
    { api }: { readonly api: Pick<Api, 'watch'> },
    readonly now: () => number = () => Date.now(),
  ) {
    this.#renewed = now();
    const { signal } = this.#over;
    const watching = async (): Promise<void> => {
      for await (const { object } of api.watch<WatchedNode>('/api/v1/nodes', signal)) this.#node(object);
    };
    const renewing = async (): Promise<void> => {
      const path = '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases';
      for await (const { object } of api.watch<WatchedLease>(path, signal)) this.#lease(object);
    };
    this.#work = Promise.all([watching(), renewing()]).then(
      () => void this.breaks.push('the API server has ended a watch'),
      (error: unknown) => {
        if (!signal.aborted) this.breaks.push(`a watch has failed: ${String(error)}`);
      },
    );
  }

  async stop(): Promise<void> {
    this.#silent();
    this.#over.abort();
    await this.#work;
  }

  #node({ metadata, status }: WatchedNode): void {
    if (metadata.name !== NODE) return;
    this.seen += 1;
    const ready = status.conditions?.find(({ type }) => type === 'Ready');
    if (ready?.status !== 'True') this.breaks.push(`${new Date(this.now()).toISOString()}: ${JSON.stringify(ready)}`);
  }

  #lease({ metadata }: WatchedLease): void {
    if (metadata.name !== NODE) return;
    this.seen += 1;
    this.#silent();
    this.#renewed = this.now();
  }

  #silent(): void {
    const ms = this.now() - this.#renewed;
    if (ms > GRACE_MS) this.breaks.push(`${new Date(this.now()).toISOString()}: kubelet was silent for ${ms / 1000} s`);
  }
}
