import { setTimeout as pause } from 'node:timers/promises';
import { resources, SLEEP } from '../../crash/scenario.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';
import type { Fault } from './faults.ts';

/** Points in the middle of a transaction. Each resize passes them. */
const HALF_WAY = [
  'backend-call-before UpdateContainerResources',
  'backend-call-after UpdateContainerResources',
  'journal-write-after',
  'cgroup-write-before memory.max',
  'cgroup-write-after cpu.max',
] as const;
const CALLS = 6;
const PAUSE_MS = 1500;
const CHURN_MS = 100;
const CHURNED = 10;
/** A busy machine may take longer than the interval to start the calls. */
const MOST_CHURN = 2;

/** Halts the shim in the middle of a transaction, calls `meanwhile`, and continues the shim. */
const halfWay = ({ shim }: Stage, random: Random, meanwhile: () => void): Promise<void> =>
  shim.halt(random.pick(HALF_WAY), meanwhile);

const SILENT_MS = 500;

/** Rejects if containerd answers. */
async function isSilent({ direct }: Stage): Promise<void> {
  const answers = direct.call('Version', {}, SILENT_MS).then(
    () => true,
    () => false,
  );
  if (await answers) throw new Error('containerd answers: the fault has not occurred');
}

const versionOf = async ({ direct }: Stage): Promise<string> =>
  (await direct.call<{ runtime_version: string }>('Version', {})).runtime_version;

export const runtimeFaults: readonly Fault[] = [
  {
    name: 'containerd is killed in mid-transaction',
    fails: 'all',
    shows: /UNAVAILABLE/,
    async run(stage, random) {
      await halfWay(stage, random, () => stage.containerd.kill());
      await stage.load.more(CALLS, 'passed');
      await stage.containerd.start();
    },
  },
  {
    name: 'containerd is stopped in mid-transaction (SIGSTOP)',
    fails: 'all',
    shows: 'run',
    async run(stage, random) {
      await halfWay(stage, random, () => stage.containerd.pause());
      try {
        await stage.containerd.isPaused();
        await isSilent(stage);
        await pause(random.integer(1, 3) * PAUSE_MS);
      } finally {
        stage.containerd.resume();
      }
    },
  },
  {
    name: 'containerd is replaced by another version in mid-transaction',
    fails: 'all',
    shows: 'run',
    async prepare(stage) {
      if (!stage.containerd.isOther) return;
      // A pod of the newer containerd is not known to the older one.
      await stage.removePods();
      stage.containerd.kill();
      stage.containerd.choose(false);
      await stage.containerd.start();
      await stage.makePods();
      await stage.settled();
    },
    async run(stage, random) {
      const before = await versionOf(stage);
      await halfWay(stage, random, () => stage.containerd.kill());
      stage.containerd.choose(true);
      await stage.containerd.start();
      const after = await versionOf(stage);
      if (after === before) throw new Error(`containerd is ${after} still: the fault has not occurred`);
    },
  },
  {
    name: 'pods are removed and made at 10 a second',
    fails: 'nothing',
    shows: 'run',
    run: churn,
  },
];

/** Removes a pod and creates another one every tenth of a second, for a second. */
async function churn(stage: Stage): Promise<void> {
  // A client of its own, as kubelet is.
  const client = new CriClient(stage.shim.cri.address);
  try {
    const numbers = Array.from({ length: CHURNED }, (_, number) => number);
    const pods = await Promise.all(numbers.map((number) => resizedPod(stage, client, number)));
    const start = performance.now();
    let took = 0;
    await Promise.all(
      pods.map(async (pod, number) => {
        await pause(number * CHURN_MS);
        took = performance.now() - start;
        await Promise.all([removeInResize(stage, pod), shortPod(stage, client, CHURNED + number)]);
      }),
    );
    if (took > MOST_CHURN * CHURNED * CHURN_MS)
      throw new Error(`${CHURNED} pods were removed in ${took.toFixed(0)} ms: the fault has not occurred`);
  } finally {
    client.close();
  }
}

async function resizedPod(stage: Stage, client: CriClient, number: number): Promise<RunningPod> {
  const container = { name: 'a', command: SLEEP, resources: resources(32, 50, 50) };
  const pod = await runPod(client, { name: `churned-${number}`, containers: [container] });
  const state: unknown = (await resizeTo('64Mi', stage, pod))['resize']?.['state'];
  if (state !== 'COMPLETED') throw new Error(`churned-${number} was not resized: the fault has not occurred`);
  return pod;
}

const resizeTo = (memory: string, { shim }: Stage, { sandboxId }: RunningPod) =>
  shim.api.call('ResizePod', { pod: { sandbox_id: sandboxId }, containers: { a: { limits: { memory } } } });

async function removeInResize(stage: Stage, pod: RunningPod): Promise<void> {
  // The resize ends when the pod is removed: it is applied, or rejected because the pod no longer exists.
  const racing = resizeTo('48Mi', stage, pod).catch(() => undefined);
  await pod.remove();
  await racing;
}

const shortPod = async (stage: Stage, client: CriClient, number: number): Promise<void> =>
  removeInResize(stage, await resizedPod(stage, client, number));
