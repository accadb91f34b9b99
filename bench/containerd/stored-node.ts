import { createHash } from 'node:crypto';

/** The pods and containers of the node whose calls are measured: as many as on a large node, of usual size. */

const PODS = 100;
const CONTAINERS_OF_POD = 5;

const hash = (text: string): string => createHash('sha256').update(text).digest('hex');

export interface StoredPod {
  readonly id: string;
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly cgroupParent: string;
}

export interface StoredContainer {
  readonly id: string;
  readonly name: string;
  readonly pod: StoredPod;
}

/** Creates this many pods, with the same values in each process. */
export function makePods(count: number): StoredPod[] {
  return Array.from({ length: count }, (_, index) => {
    const digits = hash(`uid ${index}`);
    const groups = [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20)];
    const uid = [...groups, digits.slice(20, 32)].join('-');
    return {
      id: hash(`pod ${index}`),
      uid,
      name: `checkout-${digits.slice(0, 10)}-${digits.slice(10, 15)}`,
      namespace: `team-${index % 10}-production`,
      cgroupParent: `/kubepods/burstable/pod${uid}`,
    };
  });
}

/** Creates this many containers for each pod. */
export function makeContainers(of: readonly StoredPod[], count: number): StoredContainer[] {
  return of.flatMap((pod) =>
    Array.from({ length: count }, (_, number) => ({
      id: hash(`container ${pod.uid} ${number}`),
      name: number === 0 ? 'server' : `sidecar-${number}`,
      pod,
    })),
  );
}

export const pods: readonly StoredPod[] = makePods(PODS);
export const containers: readonly StoredContainer[] = makeContainers(pods, CONTAINERS_OF_POD);

/** The running container, whose status is measured. */
export const running: StoredContainer = ((): StoredContainer => {
  const [first] = containers;
  if (first === undefined) throw new Error('the node has no containers');
  return first;
})();

/** The resources that containerd has stored for a container, in CRI's JSON. */
export const storedResources = {
  cpu_period: 100_000,
  cpu_quota: 50_000,
  cpu_shares: 512,
  memory_limit_in_bytes: 268_435_456,
} as const;

/** The kernel's values of the running container: a resize that containerd does not know. */
export const kernelFiles: Readonly<Record<string, string>> = {
  'memory.max': '536870912',
  'memory.swap.max': '0',
  'cpu.max': '100000 100000',
  'cpu.weight': '39',
};
