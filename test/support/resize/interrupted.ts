import { readdirSync } from 'node:fs';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { RequestedVolume } from '../../../src/sandbox/journal/record.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { containerId, type FakeRuntime, SANDBOX } from '../fake-runtime.ts';

/**
 * Functions for a pod of two containers whose resize was interrupted by a crash.
 * @param planned the steps of a resize, if a test does not specify others
 */
export function interrupted(runtime: () => FakeRuntime, planned: readonly Step[] = []) {
  const pod = async (): Promise<PodDescription> => (await runtime().node.registry.pod(SANDBOX))!;
  return {
    pod,
    /** Writes the steps to the journal, as a resize does before the first one. */
    begin: async (steps: readonly Step[] = planned, asked?: ReadonlyMap<string, RequestedVolume>) =>
      runtime().node.journal.begin(await pod(), steps, {
        volumes: runtime().node.policies.records(SANDBOX),
        ...(asked && { asked }),
      }),
    /** Sets the memory limits of the pod and its containers in the kernel, in MiB. */
    has: (podMemory: number, ...containers: readonly number[]): void => {
      runtime().writeFile('/kubepods/pod1', 'memory.max', String(podMemory * MiB));
      for (const [index, memory] of containers.entries())
        runtime().writeFile(`/kubepods/pod1/${containerId(index)}`, 'memory.max', String(memory * MiB));
    },
    /** Lets a cgroup use this many bytes that cannot be reclaimed. */
    uses: (cgroup: string, anon: number): void => {
      runtime().writeFile(cgroup, 'memory.stat', `anon ${anon}\nshmem 0\nunevictable 0\nfile 0\n`);
      runtime().writeFile(cgroup, 'memory.current', String(anon));
    },
    /** Returns the memory limits of the pod and its containers in the kernel, in MiB. */
    found: (): number[] => [
      Number(runtime().read('memory.max')) / MiB,
      ...[0, 1].map((index) => runtime().limitOf(index) / MiB),
    ],
    /** Returns the files of the records in the journal. */
    journal: (): string[] => readdirSync(runtime().stateFolder).filter((name) => name.endsWith('.json')),
  };
}
