import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { createContainer, KUBELET_ROOT, RunningPod } from '../../support/cri/pod.ts';
import type { LogLine } from '../../support/cri/shim.ts';
import { Kubelet } from '../../support/e2e/kubelet.ts';
import { cgroupOf } from '../../support/e2e/tenant.ts';
import { miText } from '../../support/quantities/mebibytes.ts';
import type { Scenario, Stage } from '../scenario.ts';
import { resources, SLEEP, withoutVolume } from '../scenario.ts';
import { cachedFile, endTenant, holdPageCache } from './circumstances.ts';

let made = 0;

export const restarted: readonly Scenario[] = [
  {
    name: 'a container restarts with larger limits (kubernetes 138760)',
    pod: withoutVolume,
    oneUse: true,
    async setUp({ direct, pod }) {
      await direct.call('StopContainer', { container_id: pod.id('a'), timeout: 0 });
      const left = new Map([...pod.containers].filter(([name]) => name !== 'a'));
      return new RunningPod(direct, pod.uid, pod.sandboxId, left, [], pod.qos, pod.config);
    },
    act: make,
    repeat: make,
    target: { 'pod memory.max': miText(256), 'pod cpu.max': '40000 100000' },
  },
];

/** Creates and starts another container at each call, as kubelet does, also when the previous call had no answer. */
async function make({ shim, pod }: Parameters<Scenario['act']>[0]): Promise<void> {
  const spec = { name: 'a', attempt: (made += 1), command: SLEEP, resources: resources(128, 200, 100) };
  const container_id = await createContainer(shim.cri, pod, spec);
  await shim.cri.call('StartContainer', { container_id });
}

/** kubelet admits a memory decrease and withdraws it. Until then, memory.high holds the usage below the limit. */

const LIMIT = 192;
/** The container's values before the hold, and values that another program writes. The shim writes neither of them. */
const HIGH = miText(180);
const OTHER = miText(100);

const kubelets = new Map<string, Kubelet>();

const hold: Scenario = {
  name: 'a hold of usage for a decrease that kubelet has admitted',
  everyRecovery: true,
  pod: {
    containers: [
      {
        name: 'a',
        command: SLEEP,
        resources: { ...resources(LIMIT, 100, 100), unified: { 'memory.high': HIGH } },
      },
    ],
  },
  async setUp(stage) {
    const { pod, shim, direct } = stage;
    mkdirSync(KUBELET_ROOT, { recursive: true });
    const kubelet = new Kubelet(direct);
    kubelets.set(pod.uid, kubelet);
    kubelet.runs(pod, { containers: { a: LIMIT } });
    await cachedFile('a')(stage);
    // At its start, the shim reads the pod, which was created without the shim.
    await shim.restart();
    return undefined;
  },
  async tearDown(pod) {
    kubelets.get(pod.uid)?.forget(pod);
    kubelets.delete(pod.uid);
    await endTenant(pod);
  },
  prepare: holdPageCache(120),
  act: admitAndWithdraw,
  target: {},
};

/** The pods in which another program has set the container to {@link OTHER}. */
const overwritten = new Set<string>();

const overwrittenHold: Scenario = {
  ...hold,
  name: 'a hold of usage, and another program sets memory.high after the kill',
  async act(stage) {
    const { pod, shim } = stage;
    await admitAndWithdraw(stage);
    if (shim.isAlive || pod.read('memory.high', 'a') === HIGH) return;
    setHigh(pod, OTHER);
    overwritten.add(pod.uid);
  },
  meanwhile({ pod }) {
    if (!overwritten.delete(pod.uid)) return Promise.resolve();
    const found = pod.read('memory.high', 'a');
    setHigh(pod, HIGH);
    if (found !== OTHER) throw new Error(`memory.high ${found}: expected the other program's ${OTHER}`);
    return Promise.resolve();
  },
};

export const usageHolds: readonly Scenario[] = [hold, overwrittenHold];

/** Admits a decrease and withdraws it. Resolves when the hold or the shim has ended. */
async function admitAndWithdraw({ shim, pod }: Stage): Promise<void> {
  const kubelet = kubelets.get(pod.uid);
  if (kubelet === undefined) throw new Error(`no kubelet runs pod ${pod.uid}`);
  const isEnd = ({ msg, uid, end }: LogLine): boolean =>
    msg === 'hold of memory usage ended' && uid === pod.uid && end === 'changed';
  const ends = shim.loggedTimes(isEnd);
  kubelet.admit(pod, { containers: { a: LIMIT / 3 } });
  // kubelet compares usage and limits. The shim may end before it answers, and has another client after each restart.
  shim.cri.call('ListContainerStats', { filter: { pod_sandbox_id: pod.sandboxId } }).catch(() => undefined);
  try {
    await untilEnded(shim, 'usage is held', () => highsOf(pod).every((high) => high < (LIMIT / 3) * MiB));
  } finally {
    kubelet.admit(pod, { containers: { a: LIMIT } });
  }
  // Waits until the record is removed, because the shim has crash points after the removal.
  await shim.logged(isEnd, ends + 1);
}

const setHigh = (pod: RunningPod, high: string): void =>
  writeFileSync(join(cgroupOf(pod.cgroup, pod.id('a')), 'memory.high'), high);

const highsOf = (pod: RunningPod): readonly number[] =>
  [pod.read('memory.high'), pod.read('memory.high', 'a')].map((text) => (text === 'max' ? Infinity : Number(text)));

/** Waits for a condition, or the end of the shim. The kernel does not report changes of memory.high. */
async function untilEnded(shim: Stage['shim'], what: string, holds: () => boolean): Promise<void> {
  const limit = Date.now() + 60_000;
  while (shim.isAlive && !holds()) {
    if (Date.now() > limit) throw new Error(`not within a minute: ${what}`);
    await pause(20);
  }
}
