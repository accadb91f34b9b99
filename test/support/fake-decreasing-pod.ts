import type { CgroupPath } from '../../src/cgroups/file.ts';
import type { PreviousHigh } from '../../src/cgroups/memory-high.ts';
import type { ReadWatch } from '../../src/cgroups/read-watch.ts';
import { createCounters } from '../../src/core/observe/counters.ts';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { type Bytes, bytes, type Limit } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { Decrease, DecreaseReport } from '../../src/sandbox/foresight/decrease.ts';
import { DecreaseReclaimer } from '../../src/sandbox/foresight/decrease-reclaimer.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeMemory } from './fake-memory.ts';

/** A fake node: memory of cgroups by path, a clock that tests advance, and the limits that kubelet admits. */
export class FakeKubeletNode {
  readonly clock = new FakeClock();
  readonly counters = createCounters();
  readonly cgroups = new Map<string, FakeMemory>();
  /** How often all pods with pending limits were listed. */
  lists = 0;
  /** The limits that kubelet has admitted, in MiB by cgroup, for each pod. */
  readonly admitted = new Map<string, Readonly<Record<string, number>>>();
  /** The applied limits of each pod. Replaced when kubelet has applied limits. */
  readonly actuated = new Map<string, object>();
  /** The pods whose decreases were read. */
  readonly reads: string[] = [];
  /** The limits in the kernel, in MiB by cgroup. */
  readonly limits = new Map<string, number>();
  readonly busy = new Set<string>();
  readonly deferred: [string, DecreaseReport][] = [];
  /** The holds in the journal, by pod and cgroup. */
  readonly journal = new Map<string, Map<CgroupPath, PreviousHigh['memoryHigh']>>();
  /** The limits on swap that kubelet lowers with the limits. */
  readonly swapAfter = new Map<CgroupPath, Limit<Bytes>>();
  /** Cgroups whose limit is the pod's own. */
  readonly podLevel = new Set<string>();
  /** Pods for which kubelet has admitted a limit of the pod itself. */
  readonly podLevelPending = new Set<string>();
  /** Pods with an unfinished transaction. */
  readonly unfinished = new Set<string>();
  /** The error of kubelet's last update for a decrease, by pod. */
  readonly refusals = new Map<string, { readonly reason: string; readonly message: string; readonly at: number }>();
  /** Pods whose hold has ended without removing its record. */
  readonly left: string[] = [];
  /** Makes the journal unavailable. */
  journalFault: Error | undefined;
  /** Awaited before the journal stores a hold. */
  beforeJournal: Promise<void> = Promise.resolve();
  /** Awaited before the journal stores the end of a hold. */
  beforeEnd: Promise<void> = Promise.resolve();
  readonly reclaimer: DecreaseReclaimer;
  /** Awaited before the pending decreases are known. */
  beforeDecreases: () => Promise<void> = () => Promise.resolve();
  /** Makes watches for reads fail. */
  watchFault: Error | undefined;
  #idle = new Map<string, () => void>();
  readonly #watches = new Map<string, () => void>();

  constructor() {
    const memoryOf = (cgroup: string): FakeMemory => {
      const memory = this.cgroups.get(cgroup);
      if (memory === undefined) throw new Error(`no cgroup ${cgroup}`);
      return memory;
    };
    this.reclaimer = new DecreaseReclaimer({
      tree: {
        sampleMemory: (cgroup) => memoryOf(cgroup).sampleMemory(),
        readMemoryUse: (cgroup, swapAfter) => memoryOf(cgroup).readMemoryUse(cgroup, swapAfter),
        readSwapCurrent: (cgroup) => memoryOf(cgroup).readSwapCurrent(),
        readMemoryCurrent: (cgroup) => memoryOf(cgroup).readMemoryCurrent(),
        readHigh: (cgroup) => memoryOf(cgroup).readHigh(),
        write: (cgroup, step) => {
          const isJournalled = [...this.journal.values()].some((highs) => highs.has(cgroup));
          if (!isJournalled) throw new Error(`memory.high of ${cgroup} is not in the journal`);
          return memoryOf(cgroup).write(cgroup, step);
        },
        reclaim: (cgroup, amount) => memoryOf(cgroup).reclaim(cgroup, amount),
        holds: (asked, found) => asked === found,
        watchMeasuring: (cgroup) => this.#watchMeasuring(cgroup),
      },
      holds: {
        begin: async (uid, cgroups) => {
          if (this.journalFault !== undefined) throw this.journalFault;
          if (this.unfinished.has(uid)) return false;
          await this.beforeJournal;
          this.journal.set(uid, new Map(cgroups.map((cgroup) => [cgroup, memoryOf(cgroup).readHigh()])));
          return true;
        },
        lowers: (uid, { cgroup, memoryHigh }) => {
          this.journal.get(uid)?.set(cgroup, memoryHigh);
          return Promise.resolve();
        },
        end: async (uid) => {
          await this.beforeEnd;
          this.journal.delete(uid);
        },
        left: (uid) => void this.left.push(uid),
      },
      pods: () => {
        this.lists += 1;
        return [...this.admitted.keys()];
      },
      isPending: (uid) => this.admitted.has(uid),
      entries: (uid) => [this.admitted.get(uid), this.actuated.get(uid)],
      decreases: async (uid) => {
        this.reads.push(uid);
        const admitted = this.admitted.get(uid);
        const list = Object.entries(admitted ?? {}).flatMap(([cgroup, to]): Decrease[] => {
          const from = this.limits.get(cgroup) ?? 0;
          return to < from
            ? [
                {
                  text: `container ${cgroup}`,
                  cgroup,
                  from: bytes(from * MiB),
                  to: bytes(to * MiB),
                  ...(this.podLevel.has(cgroup) && { isPod: true }),
                },
              ]
            : [];
        });
        await this.beforeDecreases();
        return (
          admitted && {
            admitted: JSON.stringify(admitted),
            list,
            limits: new Map([...this.limits].map(([cgroup, mib]) => [`container ${cgroup}`, bytes(mib * MiB)])),
            swapAfter: this.swapAfter,
            isPodLevel: this.podLevelPending.has(uid),
          }
        );
      },
      refusalOf: (uid) => this.refusals.get(uid),
      isBusy: (uid) => this.busy.has(uid),
      idle: (uid) => (this.busy.has(uid) ? new Promise((resolve) => this.#idle.set(uid, resolve)) : Promise.resolve()),
      clock: this.clock,
      log: noLog,
      counters: this.counters,
    });
    this.reclaimer.watch((uid, report) => this.deferred.push([uid, report]));
  }

  #watchMeasuring(cgroup: string): Promise<ReadWatch> {
    if (this.watchFault !== undefined) return Promise.reject(this.watchFault);
    const whenRead = new Promise<void>((resolve) => this.#watches.set(cgroup, resolve));
    return Promise.resolve({ whenRead, close: () => this.#watches.delete(cgroup) });
  }

  /** Cgroups that are watched for a program that measures them. */
  get watched(): readonly string[] {
    return [...this.#watches.keys()];
  }

  /** cAdvisor measures a cgroup. */
  measure(cgroup: string): void {
    this.#watches.get(cgroup)?.();
  }

  /** Creates a pod `uid` with one cgroup of the same name, in MiB. */
  pod(
    uid: string,
    { limit, anon, cache, stuck = 0 }: Record<'limit' | 'anon' | 'cache', number> & { stuck?: number },
  ): FakeMemory {
    const memory = new FakeMemory(anon * MiB, cache * MiB, stuck * MiB);
    this.cgroups.set(uid, memory);
    this.limits.set(uid, limit);
    return memory;
  }

  /** Creates a pod whose process rereads a file: its page cache climbs as far as memory.high allows, in MiB. */
  hotPod(uid: string, { limit, anon, hot }: Record<'limit' | 'anon' | 'hot', number>): FakeMemory {
    const memory = this.pod(uid, { limit, anon, cache: hot });
    memory.meanwhile = () => {
      const most = (memory.high === 'max' ? limit * MiB : memory.high) - memory.anon;
      if (memory.cache < hot * MiB)
        memory.cache = Math.max(memory.cache, Math.min(hot * MiB, most, memory.cache + MiB));
    };
    return memory;
  }

  /** kubelet admits a limit for the pod, in MiB. */
  admit(uid: string, limit: number): void {
    this.admitAll(uid, { [uid]: limit });
  }

  /** kubelet admits limits for cgroups of the pod, in MiB, and asks for its usage to compare them. */
  admitAll(uid: string, limits: Readonly<Record<string, number>>): void {
    this.admitUncompared(uid, limits);
    void this.reclaimer.comparable(uid, 'cadvisor');
  }

  /** kubelet admits limits for the pod's cgroups, in MiB, and does not compare: it kills a container or never tries. */
  admitUncompared(uid: string, limits: Readonly<Record<string, number>>): void {
    this.admitted.set(uid, limits);
    this.reclaimer.check();
  }

  /** kubelet lowers the limit if its rule allows this. Returns whether it did. */
  kubeletTries(uid: string): boolean {
    const wanted = this.admitted.get(uid)?.[uid] ?? 0;
    if ((this.cgroups.get(uid)?.current ?? 0) >= wanted * MiB) return false;
    this.limits.set(uid, wanted);
    this.actuated.set(uid, {});
    return true;
  }

  /** kubelet writes another entry of the pod, with the same limits of memory. */
  writeEntry(uid: string): void {
    this.actuated.set(uid, {});
    this.reclaimer.check();
  }

  /** A request takes the pod's lock. Resolves when its section begins. */
  async take(uid: string): Promise<void> {
    this.busy.add(uid);
    await this.reclaimer.release(uid);
  }

  release(uid: string): void {
    this.busy.delete(uid);
    this.#idle.get(uid)?.();
  }

  /** An update of kubelet takes the pod's lock, and fails. */
  async refuse(uid: string, reason: string, message: string): Promise<void> {
    await this.take(uid);
    this.refusals.set(uid, { reason, message, at: this.clock.wallTime() });
    this.release(uid);
  }

  /** Completes all work that does not wait for time. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 200; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Advances the clock, and fires each timer at its time. */
  async pass(ms: number): Promise<void> {
    const end = this.clock.now() + ms;
    for (;;) {
      await this.settle();
      const next = this.clock.next;
      if (next === undefined || this.clock.now() + next > end) break;
      this.clock.pass(next);
    }
    this.clock.pass(end - this.clock.now());
    await this.settle();
  }
}
