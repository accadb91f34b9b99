import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { assertReported, assertWithinPod, valuesOf } from '../crash/pod-values.ts';
import { descriptorsOf } from '../support/cri/client.ts';
import type { Fault } from './faults/faults.ts';
import type { Call } from './load.ts';
import type { Stage } from './stage.ts';

const MOST_MEGABYTES = 150;
/** Maximum number of descriptors above the first round: connections that are about to close. */
const MOST_DESCRIPTORS = 16;
/** The message of a client that timed out. The shim's own rejection names the step. */
const NO_ANSWER = /Deadline exceeded after/;

/** Resident memory of a process. */
export const megabytesOf = (pid: number): number =>
  Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

/** Returns the problems of the calls of a round. */
export function badCalls(calls: readonly Call[], { fails, shows }: Pick<Fault, 'fails' | 'shows'>): string[] {
  const mayFail = ({ kind }: Call): boolean => fails === 'all' || (fails === 'resizes' && kind === 'resize');
  const text = ({ what, code, message }: Call): string => `${what}: code ${code}: ${message}`;
  const hasAnswer = ({ message }: Call): boolean => !NO_ANSWER.test(message);
  const isMissing = shows !== 'run' && !calls.some(({ message }) => shows.test(message));
  return [
    ...(isMissing ? [`no call has failed with ${String(shows)}: the fault has not occurred`] : []),
    ...calls.filter((call) => !hasAnswer(call)).map((call) => `no answer: ${text(call)}`),
    ...calls
      .filter((call) => call.code !== 0 && hasAnswer(call) && !mayFail(call))
      .map((call) => `failed: ${text(call)}`),
  ];
}

/** Waits until the node has settled after a round. Returns the invariants that are violated. */
export async function violations(stage: Stage, descriptors: number): Promise<string[]> {
  const { shim, pods } = stage;
  const found: string[] = [];
  const check = async (what: () => unknown): Promise<void> => {
    try {
      await what();
    } catch (error) {
      found.push(error instanceof Error ? error.message : String(error));
    }
  };
  for (const pod of pods) {
    const values = valuesOf(pod);
    await check(() => assertWithinPod(values));
    if (pod.oomKills() !== 0) found.push(`${pod.oomKills()} processes were killed by the OOM killer`);
    for (const [name, value] of Object.entries(values))
      if (name.endsWith('memory.high') && value !== 'max') found.push(`${name} is ${value}: expected max`);
    await check(() => assertReported(shim.cri, pod, 'ContainerStatus'));
    await check(() => assertReported(stage.direct, pod, 'the store of the runtime'));
  }
  if (shim.leftovers().length > 0) found.push(`leftover files: ${shim.leftovers().join(', ')}`);
  await check(() => assertSameAnswers(stage));
  return [...found, ...resourcesOf(shim.pid, descriptors)];
}

function resourcesOf(pid: number, descriptors: number): string[] {
  const megabytes = megabytesOf(pid);
  const now = descriptorsOf(pid);
  return [
    ...(megabytes > MOST_MEGABYTES ? [`${megabytes.toFixed(0)} MB resident: at most ${MOST_MEGABYTES}`] : []),
    ...(now > descriptors + MOST_DESCRIPTORS ? [`${now} descriptors: ${descriptors} in the first round`] : []),
  ];
}

/** Throws if the answer to a forwarded call differs from containerd's own answer. */
async function assertSameAnswers({ shim, direct }: Stage): Promise<void> {
  for (const [method, list] of [
    ['Version', ''],
    ['ListContainers', 'containers'],
  ] as const) {
    const [through, itself] = await Promise.all(
      [shim.cri, direct].map(async (client) => sorted(await client.call<Answer>(method, {}), list)),
    );
    if (!isDeepStrictEqual(through, itself)) throw new Error(`${method} differs from the answer of containerd`);
  }
}

type Answer = Record<string, unknown>;

/** Sorts the list, because containerd's order is not fixed. */
function sorted(answer: Answer, list: string): Answer {
  const items = answer[list] as readonly { readonly id: string }[] | undefined;
  return items === undefined ? answer : { ...answer, [list]: items.toSorted((a, b) => a.id.localeCompare(b.id)) };
}
