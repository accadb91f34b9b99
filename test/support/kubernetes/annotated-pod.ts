import { afterEach, beforeEach } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { followResizes } from '../../../src/kubernetes/annotations/annotations.ts';
import type { PodEvent } from '../../../src/kubernetes/annotations/events.ts';
import { AnnotationRequests } from '../../../src/kubernetes/annotations/requests.ts';
import type { ApiPod } from '../../../src/kubernetes/pods/pod.ts';
import type { PodIdentity } from '../../../src/sandbox/pods/pod-identity.ts';
import type { Resizes } from '../../../src/sandbox/queue/resizes.ts';
import type { VolumePolicy } from '../../../src/tmpfs/sizes.ts';
import { eventually, FakeClock } from '../fake-clock.ts';
import { createResizes, FakeCore, FakeStore, web } from '../resize/fake-resizes.ts';

export const unknownVolume = new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, 'pod web has no volume none');

/** The annotations of the pod `web` as requests, with a queue of resizes and fakes for its parts. New for each test. */
export class AnnotatedPod {
  core = new FakeCore();
  clock = new FakeClock();
  store = new FakeStore();
  events: PodEvent[] = [];
  /** The pods on this node, with the annotations that they were created with. */
  running = new Map<string, { identity: PodIdentity; annotations: Record<string, string> }>();
  policies = new Map<string, VolumePolicy>();
  /** The calls that set whether a volume has an annotation. */
  annotated: (readonly [volume: string, isThere: boolean])[] = [];
  #resizes: Resizes | undefined;
  #requests: AnnotationRequests | undefined;
  #stop = new AbortController();

  constructor() {
    beforeEach(() => {
      this.core = new FakeCore();
      this.clock = new FakeClock();
      this.store = new FakeStore();
      this.events = [];
      this.running = new Map([[web.uid, { identity: web, annotations: {} }]]);
      this.annotated = [];
      this.policies = new Map();
      this.#begin();
    });
    afterEach(() => this.#stop.abort());
  }

  get resizes(): Resizes {
    if (this.#resizes === undefined) throw new Error('the test has not begun');
    return this.#resizes;
  }

  get requests(): AnnotationRequests {
    if (this.#requests === undefined) throw new Error('the test has not begun');
    return this.#requests;
  }

  #begin(): void {
    const { core, clock, store, events } = this;
    this.#stop = new AbortController();
    const newestSandbox = (uid: string): PodIdentity | undefined => this.running.get(uid)?.identity;
    const resizes = createResizes({ core, clock, store, newestSandbox });
    const pods = {
      find: (uid: string) => Promise.resolve(this.running.get(uid)),
      policy: (_: string, volume: string) => this.policies.get(volume) ?? ({ kind: 'fixed' } as const),
      annotated: (_: string, volume: string, isThere: boolean) =>
        Promise.resolve(void this.annotated.push([volume, isThere])),
    };
    const parts = { resizes, pods, clock, random: () => 0.5, log: noLog };
    const requests = new AnnotationRequests({ ...parts, post: (event) => events.push(event) });
    void followResizes(
      { resizes, clock, random: () => 0.5, log: noLog },
      (_, resize) => resize && requests.reached(resize),
      this.#stop.signal,
    );
    this.#resizes = resizes;
    this.#requests = requests;
  }

  /** Starts another process with the journal of this one. */
  async restart(): Promise<void> {
    this.#stop.abort();
    this.requests.close();
    await this.resizes.close();
    this.#begin();
    await this.resizes.restore(() => Promise.resolve(true));
  }

  /** kubelet replaces the sandbox of the pod, and removes the ended one. */
  replaceSandbox(): void {
    this.running.set(web.uid, { identity: { ...web, sandboxId: 'd'.repeat(64) }, annotations: {} });
    this.resizes.sandboxAdded(web.uid);
    this.resizes.podRemoved(web.sandboxId);
  }

  /** The API server has the pod with these annotations of volumes. */
  observe(volumes: Record<string, string>, more: Partial<ApiPod> = {}): void {
    this.requests.present({
      uid: web.uid,
      namespace: 'default',
      name: 'web',
      isMirror: false,
      isEnding: false,
      spec: undefined,
      volumes,
      ...more,
    });
  }

  /** Returns the events as text. */
  reported(): string[] {
    return this.events.map(({ reason, note }) => `${reason}: ${note}`);
  }

  eventCount(count: number): Promise<void> {
    return eventually(
      () => this.events.length >= count,
      () => this.reported().join('\n'),
    );
  }
}

export const volumesOf = ({ desired }: Awaited<ReturnType<FakeCore['next']>>): Record<string, VolumePolicy> =>
  Object.fromEntries(desired.volumes);
export const size = (mebibytes: number): VolumePolicy => ({ kind: 'absolute', size: bytes(mebibytes * MiB) });

/** Runs all pending tasks. */
export async function runPending(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
