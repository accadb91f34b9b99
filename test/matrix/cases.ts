import { expect } from 'vitest';
import type { ReportedContainer } from '../support/cri/client.ts';
import type { RunningPod } from '../support/cri/pod.ts';

/** A container's request and limit of one resource: CPU in thousandths of a processor, memory in MiB. */
export interface Amount {
  readonly request?: number;
  readonly limit?: number;
}

/** A container's requests and limits, as in the manifest of its pod. */
export interface Amounts {
  readonly cpu?: Amount;
  readonly memory?: Amount;
}

/** The requests and limits of each container of a pod, by name. */
export type PodAmounts = Readonly<Record<string, Amounts>>;

export const resourceNames = ['memory', 'cpu'] as const;
export type ResourceName = (typeof resourceNames)[number];

/** A request that equals the limit. */
export const equal = (amount: number): Required<Amount> => ({ request: amount, limit: amount });

/** Returns the amounts of container `name`. Throws if there are none. */
export function amountsOf(amounts: PodAmounts, name: string): Amounts {
  const found = amounts[name];
  if (found === undefined) throw new Error(`no amounts for container ${name}`);
  return found;
}

/** Whether `from` has a limit that `to` lacks. */
export const removesLimits = (from: PodAmounts, to: PodAmounts): boolean =>
  Object.entries(from).some(([name, { cpu, memory }]) => {
    const then = amountsOf(to, name);
    return isRemoved(cpu, then.cpu) || isRemoved(memory, then.memory);
  });

const isRemoved = (from: Amount | undefined, to: Amount | undefined): boolean =>
  from?.limit !== undefined && to?.limit === undefined;

/**
 * The pod resize cases of KEP-1287, "Pod Resize E2E Tests", on limits, requests, several containers, sidecars and QoS
 * classes, with the names and in the order of the KEP. CPU in thousandths of a processor, memory in MiB.
 */
export interface MatrixCase {
  /** The list of the KEP that contains this case. */
  readonly group: Group;
  readonly title: string;
  /** In the order in which kubelet starts them. */
  readonly containers: readonly MatrixContainer[];
  readonly start: PodAmounts;
  /** The values that the pod is resized to, in order. */
  readonly stages: readonly PodAmounts[];
}

export interface MatrixContainer {
  readonly name: string;
  /** A sidecar is an init container that keeps running; `init` runs to its end before the next one starts. */
  readonly role: 'app' | 'sidecar' | 'init';
}

export const groups = [
  'Guaranteed, one container',
  'Burstable, CPU and memory',
  'Burstable, CPU only',
  'Burstable, memory only',
  'BestEffort',
  'Guaranteed, three containers',
  'Sidecars',
] as const;
export type Group = (typeof groups)[number];

type Row = readonly [title: string, start: PodAmounts, ...stages: PodAmounts[]];

const rows = (group: Group, containers: readonly MatrixContainer[], table: readonly Row[]): MatrixCase[] =>
  table.map(([title, start, ...stages]) => ({ group, title, containers, start, stages }));

const app = (name: string): MatrixContainer => ({ name, role: 'app' });

/** Requests equal to limits. */
const guaranteed = (cpu: number, memory: number): Amounts => ({ cpu: equal(cpu), memory: equal(memory) });
const between = (request: number, limit: number): Required<Amount> => ({ request, limit });

const one = (amounts: Amounts): PodAmounts => ({ c1: amounts });
const burstable = (cpu: Amount, memory: Amount): PodAmounts => one({ cpu, memory });

const guaranteedSingle = rows(
  'Guaranteed, one container',
  [app('c1')],
  [
    [
      'Increase, decrease Requests & Limits for CPU only',
      one(guaranteed(100, 64)),
      one(guaranteed(200, 64)),
      one(guaranteed(50, 64)),
    ],
    [
      'Increase, decrease Requests & Limits for memory only',
      one(guaranteed(100, 64)),
      one(guaranteed(100, 128)),
      one(guaranteed(100, 32)),
    ],
    [
      'Increase, decrease Requests & Limits for CPU and memory',
      one(guaranteed(100, 64)),
      one(guaranteed(200, 128)),
      one(guaranteed(50, 32)),
    ],
    ['Increase CPU and decrease memory', one(guaranteed(100, 64)), one(guaranteed(200, 32))],
    ['Decrease CPU and increase memory', one(guaranteed(100, 64)), one(guaranteed(50, 128))],
    ['Add memory request & limit for CPU only container', one({ cpu: equal(100) }), one(guaranteed(100, 64))],
    ['Remove memory request & limit for CPU & memory container', one(guaranteed(100, 64)), one({ cpu: equal(100) })],
  ],
);

const cpu = between(100, 200);
const memory = between(48, 96);

const burstableBoth = rows(
  'Burstable, CPU and memory',
  [app('c1')],
  [
    [
      'Increase, decrease Requests - CPU only',
      burstable(cpu, memory),
      burstable(between(150, 200), memory),
      burstable(between(50, 200), memory),
    ],
    [
      'Increase, decrease Requests - memory only',
      burstable(cpu, memory),
      burstable(cpu, between(64, 96)),
      burstable(cpu, between(32, 96)),
    ],
    [
      'Increase, decrease Requests - both CPU & memory',
      burstable(cpu, memory),
      burstable(between(150, 200), between(64, 96)),
      burstable(between(50, 200), between(32, 96)),
    ],
    [
      'Increase, decrease Limits - CPU only',
      burstable(cpu, memory),
      burstable(between(100, 300), memory),
      burstable(between(100, 150), memory),
    ],
    [
      'Increase, decrease Limits - memory only',
      burstable(cpu, memory),
      burstable(cpu, between(48, 128)),
      burstable(cpu, between(48, 64)),
    ],
    [
      'Increase, decrease Limits - both CPU & memory',
      burstable(cpu, memory),
      burstable(between(100, 300), between(48, 128)),
      burstable(between(100, 150), between(48, 64)),
    ],
    [
      'Increase, decrease Requests & Limits - CPU only',
      burstable(cpu, memory),
      burstable(between(150, 300), memory),
      burstable(between(50, 100), memory),
    ],
    [
      'Increase, decrease Requests & Limits - memory only',
      burstable(cpu, memory),
      burstable(cpu, between(64, 128)),
      burstable(cpu, between(32, 64)),
    ],
    [
      'Increase, decrease Requests & Limits - both CPU and memory',
      burstable(cpu, memory),
      burstable(between(150, 300), between(64, 128)),
      burstable(between(50, 100), between(32, 64)),
    ],
    [
      'Increase CPU (Requests+Limits) & decrease memory(Requests+Limits)',
      burstable(cpu, memory),
      burstable(between(150, 300), between(32, 64)),
    ],
    [
      'Decrease CPU (Requests+Limits) & increase memory(Requests+Limits)',
      burstable(cpu, memory),
      burstable(between(50, 100), between(64, 128)),
    ],
    ['Increase CPU Requests while decreasing CPU Limits', burstable(cpu, memory), burstable(between(120, 150), memory)],
    ['Decrease CPU Requests while increasing CPU Limits', burstable(cpu, memory), burstable(between(50, 300), memory)],
    [
      'Increase memory Requests while decreasing memory Limits',
      burstable(cpu, memory),
      burstable(cpu, between(56, 72)),
    ],
    [
      'Decrease memory Requests while increasing memory Limits',
      burstable(cpu, memory),
      burstable(cpu, between(32, 128)),
    ],
    [
      'CPU: increase Requests, decrease Limits, Memory: increase Requests, decrease Limits',
      burstable(cpu, memory),
      burstable(between(120, 150), between(56, 72)),
    ],
    [
      'CPU: decrease Requests, increase Limits, Memory: decrease Requests, increase Limits',
      burstable(cpu, memory),
      burstable(between(50, 300), between(32, 128)),
    ],
    [
      'Set requests == limits, ensure QOS class remains Burstable',
      burstable(cpu, memory),
      burstable(equal(200), equal(96)),
    ],
  ],
);

const burstableCpu = rows(
  'Burstable, CPU only',
  [app('c1')],
  [
    [
      'Increase, decrease CPU - Requests only',
      one({ cpu }),
      one({ cpu: between(150, 200) }),
      one({ cpu: between(50, 200) }),
    ],
    [
      'Increase, decrease CPU - Limits only',
      one({ cpu }),
      one({ cpu: between(100, 300) }),
      one({ cpu: between(100, 150) }),
    ],
    [
      'Increase, decrease CPU - both Requests & Limits',
      one({ cpu }),
      one({ cpu: between(150, 300) }),
      one({ cpu: between(50, 100) }),
    ],
  ],
);

const burstableMemory = rows(
  'Burstable, memory only',
  [app('c1')],
  [
    [
      'Increase, decrease memory - Requests only',
      one({ memory }),
      one({ memory: between(64, 96) }),
      one({ memory: between(32, 96) }),
    ],
    [
      'Increase, decrease memory - Limits only',
      one({ memory }),
      one({ memory: between(48, 128) }),
      one({ memory: between(48, 64) }),
    ],
    [
      'Increase, decrease memory - both Requests & Limits',
      one({ memory }),
      one({ memory: between(64, 128) }),
      one({ memory: between(32, 64) }),
    ],
  ],
);

const bestEffort = rows(
  'BestEffort',
  [app('c1')],
  [
    ['Add CPU requests & limits, QOS class remains BestEffort', one({}), one({ cpu })],
    ['Add Memory requests & limits, QOS class remains BestEffort', one({}), one({ memory })],
  ],
);

/** Three Guaranteed containers, each as [CPU, memory]. */
const three = (
  c1: readonly [number, number],
  c2: readonly [number, number],
  c3: readonly [number, number],
): PodAmounts => ({ c1: guaranteed(...c1), c2: guaranteed(...c2), c3: guaranteed(...c3) });

const threeAtStart = three([100, 64], [150, 96], [200, 128]);

const guaranteedThree = rows(
  'Guaranteed, three containers',
  [app('c1'), app('c2'), app('c3')],
  [
    ['Increase CPU & memory for all three containers', threeAtStart, three([150, 96], [200, 128], [250, 160])],
    ['Decrease CPU & memory for all three containers', threeAtStart, three([50, 32], [100, 64], [150, 96])],
    ['Increase CPU, decrease memory for all three containers', threeAtStart, three([150, 32], [200, 64], [250, 96])],
    ['Decrease CPU, increase memory for all three containers', threeAtStart, three([50, 96], [100, 128], [150, 160])],
    [
      'Increase CPU for c1, decrease c2, c3 unchanged - no net CPU change',
      threeAtStart,
      three([150, 64], [100, 96], [200, 128]),
    ],
    [
      'Increase memory for c1, decrease c2, c3 unchanged - no net memory change',
      threeAtStart,
      three([100, 96], [150, 64], [200, 128]),
    ],
    [
      'Increase CPU for c1, decrease c2 & c3 - net CPU decrease for Pod',
      threeAtStart,
      three([150, 64], [100, 96], [100, 128]),
    ],
    [
      'Increase memory for c1, decrease c2 & c3 - net memory decrease for Pod',
      threeAtStart,
      three([100, 96], [150, 64], [200, 64]),
    ],
    [
      'Increase CPU for c1 & c3, decrease c2 - net CPU increase for Pod',
      threeAtStart,
      three([200, 64], [100, 96], [300, 128]),
    ],
    [
      'Increase memory for c1 & c3, decrease c2 - net memory increase for Pod',
      threeAtStart,
      three([100, 128], [150, 64], [200, 192]),
    ],
  ],
);

/**
 * A pod with an init container that requests less than the other containers, so it does not determine the pod's values.
 */
const sidecarPod = (sidecar: Amounts, c1: Amounts): PodAmounts => ({ i1: guaranteed(50, 32), sidecar, c1 });
const ended: MatrixContainer = { name: 'i1', role: 'init' };
const sidecar: MatrixContainer = { name: 'sidecar', role: 'sidecar' };

const sidecarAlone: readonly [PodAmounts, PodAmounts, PodAmounts] = [
  sidecarPod(guaranteed(50, 32), guaranteed(100, 64)),
  sidecarPod(guaranteed(100, 64), guaranteed(100, 64)),
  sidecarPod(guaranteed(30, 24), guaranteed(100, 64)),
];

const sidecars = [
  ...rows(
    'Sidecars',
    [ended, sidecar, app('c1')],
    [['InitContainer, then sidecar - can increase & decrease CPU & memory of sidecar', ...sidecarAlone]],
  ),
  ...rows(
    'Sidecars',
    [sidecar, ended, app('c1')],
    [['Sidecar then InitContainer - can increase & decrease CPU & memory of sidecar', ...sidecarAlone]],
  ),
  ...rows(
    'Sidecars',
    [sidecar, app('c1')],
    [
      [
        'Resize sidecar along with container',
        { sidecar: guaranteed(50, 32), c1: guaranteed(100, 64) },
        { sidecar: guaranteed(100, 64), c1: guaranteed(50, 96) },
        { sidecar: guaranteed(30, 24), c1: guaranteed(150, 48) },
      ],
    ],
  ),
];

/** All cases, in the order of the KEP. */
export const matrixCases: readonly MatrixCase[] = [
  ...guaranteedSingle,
  ...burstableBoth,
  ...burstableCpu,
  ...burstableMemory,
  ...bestEffort,
  ...guaranteedThree,
  ...sidecars,
];

const RUNNING = 1;
const EXITED = 2;

/**
 * Expects that the pod's containers match those of its case: an init container has ended with code 0, the others run,
 * and each was started after the previous one had started, or had ended. CRI does not know sidecars: a sidecar is a
 * container that was started before an init container or the first main container, and still runs.
 */
export async function assertStartedInOrder(
  { client, sandboxId }: RunningPod,
  containers: readonly MatrixContainer[],
): Promise<void> {
  const filter = { pod_sandbox_id: sandboxId };
  const listed = await client.call<{ containers: { id: string }[] }>('ListContainers', { filter });
  const found = await Promise.all(listed.containers.map(({ id }) => client.containerStatus(id)));
  found.sort((a, b) => a.started_at - b.started_at);
  const seen = found.map(({ metadata, state, exit_code }) => ({ name: metadata.name, state, exit_code }));
  const wanted = containers.map(({ name, role }) => ({
    name,
    state: role === 'init' ? EXITED : RUNNING,
    exit_code: 0,
  }));
  expect(seen, 'in the order of their start').toEqual(wanted);
  for (const [at, container] of found.slice(1).entries())
    expect(container.started_at, container.metadata.name).toBeGreaterThan(readyAt(found[at]!));
}

/** Returns the time at which kubelet starts the next container. */
const readyAt = ({ started_at, finished_at }: ReportedContainer): number => Math.max(started_at, finished_at);
