import { type WeightFormula, weightOfShares } from '../../src/cgroups/values/conversions.ts';
import { cpuShares } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { Amounts, PodAmounts } from './cases.ts';
import { amountsOf } from './cases.ts';
import { PERIOD, type PodValues, podWeight, quotaOf, reservationFile, sharesOf } from './kubelet-values.ts';
import type { MatrixPod } from './matrix-pod.ts';

/** The visible state of a pod: the kernel's files, in the kernel's format, and ContainerStatus. */
export interface Observation {
  readonly pod: Files;
  readonly containers: Readonly<Record<string, Observed>>;
  readonly oomKills: number;
}

interface Files {
  readonly 'memory.max': string;
  readonly 'cpu.max': string;
  readonly 'cpu.weight': string;
}

interface Observed {
  readonly files: Files & { readonly reserved: string };
  readonly reported: {
    readonly memory: number;
    readonly quota: number;
    readonly period: number;
    readonly shares: number;
  };
  readonly running: boolean;
  readonly attempt: number;
  /** The process ids in the container. */
  readonly processes: string;
}

const RUNNING = 1;

/** Reads the state of a pod from the kernel and through the shim. */
export async function observe(pod: MatrixPod): Promise<Observation> {
  const { running, qos } = pod;
  const containers: Record<string, Observed> = {};
  for (const [name, id] of running.containers) {
    const status = await running.client.containerStatus(id);
    const linux = status.resources!.linux!;
    containers[name] = {
      files: { ...filesOf(pod, name), reserved: running.read(reservationFile(qos), name) },
      reported: {
        // No limit is 0 if it was never set, and -1 if it was removed.
        memory: Math.max(linux.memory_limit_in_bytes, 0),
        quota: Math.max(linux.cpu_quota, 0),
        period: linux.cpu_period,
        shares: linux.cpu_shares,
      },
      running: status.state === RUNNING,
      attempt: status.metadata.attempt,
      processes: running.read('cgroup.procs', name),
    };
  }
  return { pod: filesOf(pod), containers, oomKills: running.oomKills() };
}

function filesOf({ running }: MatrixPod, container?: string): Files {
  return {
    'memory.max': running.read('memory.max', container),
    'cpu.max': running.read('cpu.max', container),
    'cpu.weight': running.read('cpu.weight', container),
  };
}

/** Returns the formula by which a runtime converts a container's shares to a weight. */
export function runtimeFormula(runtime: string | undefined): WeightFormula {
  if (runtime === 'runc') return 'old';
  if (runtime === 'crun' || runtime === 'runc-1.3') return 'new';
  throw new Error(`OCI_RUNTIME is ${runtime ?? 'not set'}: the matrix runs in the test node only`);
}

/** The lines that a watcher reports for a pod in this state. */
export type Sums = Readonly<Record<'memory' | 'cpu', string>>;
export function sumsOf({ pod, containers }: Observation): Sums {
  const all = Object.values(containers).map(({ files }) => files);
  const line = (of: (files: Files) => number): string =>
    `containers ${sixDigits(all.reduce((sum, files) => sum + of(files), 0))}, pod ${sixDigits(of(pod))}`;
  return {
    memory: `memory: ${line((files) => limitOf(files['memory.max']))}`,
    cpu: `cpu: ${line((files) => rateOf(files['cpu.max']))}`,
  };
}

const limitOf = (text: string | undefined): number => (text === 'max' ? Infinity : Number(text));

function rateOf(text: string): number {
  const [quota, period] = text.split(' ');
  return limitOf(quota) / Number(period);
}

const sixDigits = (value: number): number => Math.round(value * 1e6) / 1e6;

/** The process ids of each container. */
export type Processes = Readonly<Record<string, string>>;
export const processesOf = ({ containers }: Observation): Processes =>
  Object.fromEntries(Object.entries(containers).map(([name, { processes }]) => [name, processes]));

/** Returns the expected state of a pod with `amounts` and with unchanged processes. */
export function expected(pod: MatrixPod, amounts: PodAmounts, values: PodValues, processes: Processes): Observation {
  const formula = runtimeFormula(process.env['OCI_RUNTIME']);
  const containers: Record<string, Observed> = {};
  for (const name of pod.running.containers.keys()) {
    const of = { ...amountsOf(amounts, name), reserved: pod.reserved.get(name)! };
    containers[name] = expectedContainer(of, processes[name]!, formula);
  }
  const podFiles = {
    'memory.max': String(values.memory ?? 'max'),
    'cpu.max': `${values.quota ?? 'max'} ${PERIOD}`,
    'cpu.weight': String(podWeight(values.shares)),
  };
  return { pod: podFiles, containers, oomKills: 0 };
}

function expectedContainer(
  { cpu, memory, reserved }: Amounts & { readonly reserved: number },
  processes: string,
  formula: WeightFormula,
): Observed {
  const bytes = (memory?.limit ?? 0) * MiB;
  const quota = quotaOf(cpu?.limit ?? 0);
  const shares = sharesOf(cpu?.request ?? 0);
  return {
    files: {
      'memory.max': bytes === 0 ? 'max' : String(bytes),
      'cpu.max': `${quota === 0 ? 'max' : quota} ${PERIOD}`,
      'cpu.weight': String(weightOfShares(cpuShares(shares), formula)),
      reserved: String(reserved * MiB),
    },
    reported: { memory: bytes, quota, period: PERIOD, shares },
    running: true,
    attempt: 0,
    processes,
  };
}
