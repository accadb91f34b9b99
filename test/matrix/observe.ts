import { weightOfShares } from '../../src/cgroups/index.ts';
import type { WeightFormula } from '../../src/cgroups/index.ts';
import { cpuShares } from '../../src/units/index.ts';
import type { ReportedContainer } from '../cri/client.ts';
import { type Amounts, type PodAmounts, amountsOf } from './amounts.ts';
import { MI, PERIOD, type PodValues, podWeight, quotaOf, reservationFile, sharesOf } from './kubelet-values.ts';
import type { MatrixPod } from './matrix-pod.ts';

/** What can be seen of a pod: in the kernel's files and by ContainerStatus, in the kernel's own words. */
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
  readonly pid: number;
}

const RUNNING = 1;

/** Looks at a pod, by the kernel and through the shim. */
export async function observe(pod: MatrixPod): Promise<Observation> {
  const { running, qos } = pod;
  const containers: Record<string, Observed> = {};
  for (const [name, id] of running.containers) {
    const request = { container_id: id, verbose: true };
    const { status, info } = await running.client.call<{ status: ReportedContainer; info: Record<string, string> }>(
      'ContainerStatus',
      request,
    );
    const linux = status.resources!.linux!;
    containers[name] = {
      files: { ...filesOf(pod, name), reserved: running.read(reservationFile(qos), name) },
      reported: {
        // No limit is 0, never given, or -1, taken away.
        memory: Math.max(linux.memory_limit_in_bytes, 0),
        quota: Math.max(linux.cpu_quota, 0),
        period: linux.cpu_period,
        shares: linux.cpu_shares,
      },
      running: status.state === RUNNING,
      attempt: status.metadata.attempt,
      pid: (JSON.parse(info.info!) as { pid: number }).pid,
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

/** How this node's runtime makes a container's weight of its shares. */
export function runtimeFormula(runtime: string | undefined): WeightFormula {
  if (runtime === 'runc') return 'old';
  if (runtime === 'crun' || runtime === 'runc-1.3') return 'new';
  throw new Error(`OCI_RUNTIME is ${runtime ?? 'not set'}: the matrix runs in the test node only`);
}

/** The process of each container. */
export const pidsOf = ({ containers }: Observation): Readonly<Record<string, number>> =>
  Object.fromEntries(Object.entries(containers).map(([name, { pid }]) => [name, pid]));

/** What shall be seen of a pod that has `amounts`, with the processes that it had. */
export function expected(
  pod: MatrixPod,
  amounts: PodAmounts,
  values: PodValues,
  pids: Readonly<Record<string, number>>,
): Observation {
  const formula = runtimeFormula(process.env['OCI_RUNTIME']);
  const containers: Record<string, Observed> = {};
  for (const name of pod.running.containers.keys()) {
    containers[name] = expectedContainer(amountsOf(amounts, name), pids[name]!, formula);
  }
  const podFiles = {
    'memory.max': String(values.memory ?? 'max'),
    'cpu.max': `${values.quota ?? 'max'} ${PERIOD}`,
    'cpu.weight': String(podWeight(values.shares)),
  };
  return { pod: podFiles, containers, oomKills: 0 };
}

function expectedContainer({ cpu, memory }: Amounts, pid: number, formula: WeightFormula): Observed {
  const bytes = (memory?.limit ?? 0) * MI;
  const quota = quotaOf(cpu?.limit ?? 0);
  const shares = sharesOf(cpu?.request ?? 0);
  return {
    files: {
      'memory.max': bytes === 0 ? 'max' : String(bytes),
      'cpu.max': `${quota === 0 ? 'max' : quota} ${PERIOD}`,
      'cpu.weight': String(weightOfShares(cpuShares(shares), formula)),
      reserved: String((memory?.request ?? 0) * MI),
    },
    reported: { memory: bytes, quota, period: PERIOD, shares },
    running: true,
    attempt: 0,
    pid,
  };
}
