import { expect } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Messages, Span } from '../../../src/server/api/messages.ts';
import { type Answer, refusal } from '../../support/resize-api/client.ts';
import type { Amounts, PodAmounts } from '../cases.ts';
import { amountsOf } from '../cases.ts';
import { PERIOD, type PodValues, podWeight, qosClass, quotaOf, reservationFile, sharesOf } from '../kubelet-values.ts';
import type { MatrixPod, Reserved } from '../matrix-pod.ts';
import { brokenRules, type ReportedStep, readChanges, type Values } from '../step-rules.ts';
import type { Way } from './way.ts';

/**
 * One call of the resize API for the whole pod, with all values of each container and none of the pod. The pod's tight
 * limits follow the containers, and so do its shares, unless it is BestEffort. A pod without a limit keeps none.
 */
export const resizePod: Way = {
  name: 'ResizePod',
  removesLimits: true,
  reservedAfter(pod, to) {
    const requests = pod.requests(to);
    return new Map([...pod.reserved].map(([name, now]) => [name, isDerived(pod, name) ? requests.get(name)! : now]));
  },
  // KEP-1287, "QOS Class": the class that is computed after a resize matches the one before. Its list of cases is
  // older.
  refusal: {
    applies: (pod, to) => qosClass(pod.origin.containers, to) !== pod.qos,
    async resize(pod, to) {
      const { code, reason } = await refusal(pod.api.call('ResizePod', request(pod, to)));
      expect({ code, reason }).toEqual({ code: 9, reason: 'QOS_CLASS_CHANGES' });
    },
  },
  async resize(pod, from, to, before) {
    const { resize } = await pod.api.call('ResizePod', request(pod, to));
    assertCompleted(resize!, pod);
    const [start, end] = [valuesOf(pod, from, before), valuesOf(pod, to, resizePod.podAfter(pod, before, to))];
    const reserved = resizePod.reservedAfter(pod, to);
    expect(
      brokenRules(stepsOf(resize!, pod), withReserved(pod, start, pod.reserved), withReserved(pod, end, reserved)),
      `steps to ${JSON.stringify(to)}`,
    ).toEqual([]);
    expect(reportedValues(resize!['before']!), 'before').toEqual(start);
    expect(reportedValues(resize!['after']!), 'after').toEqual(end);
    expect(reportedAmounts(resize!['before']!), 'before').toEqual(amountsIn(pod, from));
    for (const name of pod.running.containers.keys()) {
      const asked = amountsOf(to, name).memory?.request;
      if (asked !== undefined) pod.requested.set(name, asked);
    }
    expect(reportedAmounts(resize!['after']!), 'after').toEqual(amountsIn(pod, to));
  },
  podAfter(pod, before, to) {
    const sum = (of: (amounts: Amounts) => number): number =>
      [...pod.running.containers.keys()].reduce((total, name) => total + of(amountsOf(to, name)), 0);
    const finite = (total: number): number | undefined => (Number.isFinite(total) ? total : undefined);
    return {
      memory: before.memory === undefined ? undefined : finite(sum(({ memory }) => (memory?.limit ?? Infinity) * MiB)),
      quota: before.quota === undefined ? undefined : finite(sum(({ cpu }) => quotaOf(cpu?.limit ?? Infinity))),
      // A resize does not change the class of a pod. BestEffort pods have the minimum shares.
      shares: pod.qos === 'besteffort' ? before.shares : sum(({ cpu }) => sharesOf(cpu?.request ?? 0)),
    };
  },
};

/**
 * Whether the shim knows that a container's reservation comes from its memory request and not from another program: the
 * request of a Guaranteed pod equals its limit, and any other request is known from the last ResizePod.
 */
const isDerived = (pod: MatrixPod, name: string): boolean =>
  pod.qos === 'guaranteed' || pod.requested.get(name) === pod.reserved.get(name);

const withReserved = (pod: MatrixPod, values: Values, reserved: Reserved): Values =>
  new Map([
    ...values,
    ...[...reserved].map(([name, request]): [string, string] => [
      `${name} ${reservationFile(pod.qos)}`,
      String(request * MiB),
    ]),
  ]);

/** The CPU request for a container without one: kubelet sets the minimum shares. */
const LEAST_CPU = '1m';
/** The CPU reported for 2 shares, at 1024 shares per CPU, rounded up. */
const CPU_OF_LEAST_SHARES = '2m';

function request(pod: MatrixPod, to: PodAmounts): object {
  const resources = ({ cpu, memory }: Amounts): object => ({
    limits: { cpu: milli(cpu?.limit) ?? '-1', memory: mebi(memory?.limit) ?? '-1' },
    // A request cannot be removed. The last memory request stays.
    requests: { cpu: milli(cpu?.request) ?? LEAST_CPU, memory: mebi(memory?.request) ?? '' },
  });
  const names = [...pod.running.containers.keys()];
  return {
    pod: { sandbox_id: pod.running.sandboxId },
    containers: Object.fromEntries(names.map((name) => [name, resources(amountsOf(to, name))])),
  };
}

const milli = (amount: number | undefined): string | undefined => (amount === undefined ? undefined : `${amount}m`);
const mebi = (amount: number | undefined): string | undefined => (amount === undefined ? undefined : `${amount}Mi`);

function assertCompleted(resize: Answer, { running: { sandboxId, uid } }: MatrixPod): void {
  expect(resize).toMatchObject({
    state: 'COMPLETED',
    tries: 1,
    pod: { sandbox_id: sandboxId, uid, namespace: 'default', name: 'matrix' },
  });
  // Empty fields are absent from the answer.
  expect([resize['reason'], resize['message'], resize['next_try']]).toEqual([undefined, undefined, undefined]);
}

/** Returns all values that a resize may change. */
function valuesOf(pod: MatrixPod, amounts: PodAmounts, { memory, quota, shares }: PodValues): Values {
  const values = new Map([
    ['pod memory.max', String(memory ?? 'max')],
    ['pod cpu.max', `${quota ?? 'max'} ${PERIOD}`],
    ['pod cpu.weight', String(podWeight(shares))],
  ]);
  for (const name of pod.running.containers.keys()) {
    const { memory, cpu } = amountsOf(amounts, name);
    values.set(`${name} memory.max`, memory?.limit === undefined ? 'max' : String(memory.limit * MiB));
    values.set(`${name} cpu.max`, `${cpu?.limit === undefined ? 'max' : quotaOf(cpu.limit)} ${PERIOD}`);
    values.set(`${name} cpu shares`, String(sharesOf(cpu?.request ?? 0)));
  }
  return values;
}

function reportedValues(answer: Answer): Values {
  const { pod, containers } = answer as unknown as Messages['PodValues'];
  return new Map([
    ['pod memory.max', pod.memory_max],
    ['pod cpu.max', pod.cpu_max],
    ['pod cpu.weight', String(pod.cpu_weight)],
    ...containers.flatMap(({ name, values }): [string, string][] => [
      [`${name} memory.max`, values.memory_max],
      [`${name} cpu.max`, values.cpu_max],
      [`${name} cpu shares`, String(values.cpu_shares)],
    ]),
  ]);
}

/** Returns the reported values in the format of a manifest. */
function reportedAmounts(answer: Answer): object {
  const { containers } = answer as unknown as Messages['PodValues'];
  return Object.fromEntries(containers.map(({ name, values: { limits, requests } }) => [name, { limits, requests }]));
}

/** Returns the expected values in the format of a manifest. The shim knows memory requests only from ResizePod. */
function amountsIn(pod: MatrixPod, amounts: PodAmounts): object {
  const entries = [...pod.running.containers.keys()].map((name) => {
    const { cpu, memory } = amountsOf(amounts, name);
    const requested = mebi(pod.requested.get(name));
    const limits = { cpu: milli(cpu?.limit) ?? 'max', memory: mebi(memory?.limit) ?? 'max' };
    const requests = { cpu: milli(cpu?.request) ?? CPU_OF_LEAST_SHARES, ...(requested && { memory: requested }) };
    return [name, { limits, requests }] as const;
  });
  return Object.fromEntries(entries);
}

function stepsOf(resize: Answer, pod: MatrixPod): ReportedStep[] {
  const millis = ({ seconds = 0, nanos = 0 }: Partial<Span>): number => seconds * 1000 + nanos / 1e6;
  // Fields with the default value are not in the answer.
  const steps = (resize['steps'] ?? []) as unknown as (Omit<Messages['Step'], 'target'> & { target?: string })[];
  return steps.map(({ kind, target = '', text, at, took }) => {
    const subject = target === '' ? 'pod ' : `container ${pod.running.id(target)} `;
    expect(text.startsWith(subject), `${kind} ${target}: ${text}`).toBe(true);
    return {
      target: target === '' ? 'pod' : target,
      changes: readChanges(text.slice(subject.length)),
      at: millis(at),
      took: millis(took),
    };
  });
}
