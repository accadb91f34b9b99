import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import type { EntryRequests } from '../../../src/kubelet/checkpoint.ts';
import { NewestValues } from '../../../src/sandbox/history/newest-values.ts';
import type { PodIdentity } from '../../../src/sandbox/pods/pod-identity.ts';
import type { Resize } from '../../../src/sandbox/queue/resize-table.ts';
import type { ResizeBounds, Resizes } from '../../../src/sandbox/queue/resizes.ts';
import { FakeClock } from '../fake-clock.ts';
import { asked, createResizes, FakeCore, FakeStore, web } from './fake-resizes.ts';

export const memoryInUse = new ShimError(Code.FAILED_PRECONDITION, Reason.MEMORY_NOT_RECLAIMABLE, 'app: 100 in use', {
  found: '100',
});
export const noCgroup = new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'no cgroup');
export const staysGuaranteed = new ShimError(Code.FAILED_PRECONDITION, Reason.QOS_CLASS_CHANGES, 'Guaranteed');
export const noBackend = new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, 'no containerd');
/** The answer of a containerd that accepts connections before it serves calls. */
export const starting = Object.assign(new Error('2 UNKNOWN'), {
  code: Code.UNKNOWN,
  details: 'server is not initialized yet',
  metadata: {},
});
export const diskFull = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'ENOSPC');
export const notRecovered = new ShimError(Code.INTERNAL, Reason.UNDO_FAILED, 'an update is not answered');
export const podEnded = new ShimError(Code.FAILED_PRECONDITION, Reason.POD_ENDED, 'it has ended');
export const noPod = new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, 'no such pod');

/** A queue of resizes with fakes for its parts. */
export class ResizeQueue {
  core = new FakeCore();
  clock = new FakeClock();
  readonly store = new FakeStore();
  /** The resources that kubelet has admitted, by pod uid. */
  readonly kubelet = new Map<string, EntryRequests>();
  resizes: Resizes;

  constructor(bounds: Partial<ResizeBounds> = {}, newest = new NewestValues()) {
    this.resizes = createResizes({ ...this.#parts, bounds, newest });
  }

  /** Starts another queue with the records of this one. */
  restart(): Resizes {
    this.clock = new FakeClock();
    this.core = new FakeCore();
    this.resizes = createResizes(this.#parts);
    return this.resizes;
  }

  get #parts() {
    const { core, clock, store, kubelet } = this;
    return { core, clock, store, kubeletRequests: (uid: string) => kubelet.get(uid) };
  }

  resize(memory = '128Mi', options: { defer?: boolean; pod?: PodIdentity; request?: string } = {}): Promise<Resize> {
    const { defer = false, pod = web, request = '' } = options;
    const deadline = this.clock.now() + 5000;
    return this.resizes.resize(pod, asked(memory, request), { defer, timeoutMs: 30_000, deadline });
  }

  /** Returns a resize that is deferred after its first try. */
  async deferred(memory = '128Mi', pod = web): Promise<Resize> {
    const answer = this.resize(memory, { defer: true, pod });
    (await this.core.next()).fail(memoryInUse);
    return answer;
  }

  /** The number of resizes that are counted as proposed but not as ended. */
  get unfinished(): number {
    const { proposed, infeasible, completed, canceled } = this.resizes.counts;
    return proposed - infeasible - completed - canceled;
  }
}
