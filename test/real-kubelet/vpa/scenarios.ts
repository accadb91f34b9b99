/** The `vpa` scenarios: pods whose memory in use blocks limits that the Vertical Pod Autoscaler recommends. */

/** A process in the container's cgroup: its commands (test/support/e2e/tenant.ts), with amounts in MiB. */
export type Use =
  | { readonly kind: 'anonymous'; readonly mebibytes: number }
  | { readonly kind: 'cold cache'; readonly mebibytes: number }
  | { readonly kind: 'hot cache'; readonly mebibytes: number }
  | { readonly kind: 'dirty cache'; readonly mebibytes: number }
  /** Files in the pod's memory-backed volume. */
  | { readonly kind: 'volume'; readonly mebibytes: number };

export interface ScenarioContainer {
  readonly name: string;
  /** Limit and request of memory, in MiB. */
  readonly from: number;
  /** The recommendation, in MiB. */
  readonly to: number;
  readonly uses: readonly Use[];
}

export interface Scenario {
  /** The value of `--only`. */
  readonly name: string;
  readonly title: string;
  readonly replicas: number;
  readonly containers: readonly ScenarioContainer[];
  /** Whether the memory that cannot be reclaimed fits into the recommendation. */
  readonly fits: boolean;
}

const one = (name: string, title: string, uses: readonly Use[], fits = true): Scenario => ({
  name,
  title,
  replicas: 1,
  fits,
  containers: [{ name: 'app', from: 256, to: 128, uses }],
});

const replicas = (count: number): Scenario => ({
  name: `replicas-${count}`,
  title: `${count} replicas at once, cold page cache`,
  replicas: count,
  fits: true,
  containers: [{ name: 'app', from: 80, to: 48, uses: [{ kind: 'cold cache', mebibytes: 60 }] }],
});

const inOppositeDirections: Scenario = {
  name: 'opposite',
  title: 'two containers in opposite directions, cold page cache in one',
  replicas: 1,
  fits: true,
  containers: [
    { name: 'app', from: 256, to: 128, uses: [{ kind: 'cold cache', mebibytes: 200 }] },
    { name: 'sidecar', from: 64, to: 128, uses: [] },
  ],
};

/** Scenarios of one batch run at the same time. */
export const batches: readonly (readonly Scenario[])[] = [
  [
    one('cold', 'cold page cache', [{ kind: 'cold cache', mebibytes: 200 }]),
    one('hot', 'hot page cache', [{ kind: 'hot cache', mebibytes: 200 }]),
    one('dirty', 'dirty page cache', [{ kind: 'dirty cache', mebibytes: 160 }]),
    one('tmpfs', 'files in a memory-backed volume, and cold page cache', [
      { kind: 'volume', mebibytes: 48 },
      { kind: 'cold cache', mebibytes: 150 },
    ]),
    inOppositeDirections,
    replicas(2),
    one('anonymous', 'anonymous memory that does not fit', [{ kind: 'anonymous', mebibytes: 200 }], false),
  ],
  [replicas(20)],
];

export const scenarios: readonly Scenario[] = batches.flat();
