import { describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { Amount, Amounts, Group, MatrixCase, MatrixContainer, PodAmounts } from './cases.ts';
import { amountsOf, equal, groups, matrixCases } from './cases.ts';
import { podValues, podWeight, qosClass, quotaOf, sharesOf, sharesOfPodWeight } from './kubelet-values.ts';
import type { ReportedStep } from './step-rules.ts';
import { brokenRules, readChanges } from './step-rules.ts';

/**
 * The lists of KEP-1287: each title with its changes. Each word is a stage of a case, compared with the start. Slashes
 * separate containers. Each container has CPU request, CPU limit, memory request and memory limit: `+` up, `-` down,
 * `=` unchanged, `a` added, `r` removed, `.` never set. Init containers that end are not listed.
 */
const lists: Readonly<Record<Group, Readonly<Record<string, string>>>> = {
  'Guaranteed, one container': {
    'Increase, decrease Requests & Limits for CPU only': '++== --==',
    'Increase, decrease Requests & Limits for memory only': '==++ ==--',
    'Increase, decrease Requests & Limits for CPU and memory': '++++ ----',
    'Increase CPU and decrease memory': '++--',
    'Decrease CPU and increase memory': '--++',
    'Add memory request & limit for CPU only container': '==aa',
    'Remove memory request & limit for CPU & memory container': '==rr',
  },
  'Burstable, CPU and memory': {
    'Increase, decrease Requests - CPU only': '+=== -===',
    'Increase, decrease Requests - memory only': '==+= ==-=',
    'Increase, decrease Requests - both CPU & memory': '+=+= -=-=',
    'Increase, decrease Limits - CPU only': '=+== =-==',
    'Increase, decrease Limits - memory only': '===+ ===-',
    'Increase, decrease Limits - both CPU & memory': '=+=+ =-=-',
    'Increase, decrease Requests & Limits - CPU only': '++== --==',
    'Increase, decrease Requests & Limits - memory only': '==++ ==--',
    'Increase, decrease Requests & Limits - both CPU and memory': '++++ ----',
    'Increase CPU (Requests+Limits) & decrease memory(Requests+Limits)': '++--',
    'Decrease CPU (Requests+Limits) & increase memory(Requests+Limits)': '--++',
    'Increase CPU Requests while decreasing CPU Limits': '+-==',
    'Decrease CPU Requests while increasing CPU Limits': '-+==',
    'Increase memory Requests while decreasing memory Limits': '==+-',
    'Decrease memory Requests while increasing memory Limits': '==-+',
    'CPU: increase Requests, decrease Limits, Memory: increase Requests, decrease Limits': '+-+-',
    'CPU: decrease Requests, increase Limits, Memory: decrease Requests, increase Limits': '-+-+',
    'Set requests == limits, ensure QOS class remains Burstable': '+=+=',
  },
  'Burstable, CPU only': {
    'Increase, decrease CPU - Requests only': '+=.. -=..',
    'Increase, decrease CPU - Limits only': '=+.. =-..',
    'Increase, decrease CPU - both Requests & Limits': '++.. --..',
  },
  'Burstable, memory only': {
    'Increase, decrease memory - Requests only': '..+= ..-=',
    'Increase, decrease memory - Limits only': '..=+ ..=-',
    'Increase, decrease memory - both Requests & Limits': '..++ ..--',
  },
  BestEffort: {
    'Add CPU requests & limits, QOS class remains BestEffort': 'aa..',
    'Add Memory requests & limits, QOS class remains BestEffort': '..aa',
  },
  'Guaranteed, three containers': {
    'Increase CPU & memory for all three containers': '++++/++++/++++',
    'Decrease CPU & memory for all three containers': '----/----/----',
    'Increase CPU, decrease memory for all three containers': '++--/++--/++--',
    'Decrease CPU, increase memory for all three containers': '--++/--++/--++',
    'Increase CPU for c1, decrease c2, c3 unchanged - no net CPU change': '++==/--==/====',
    'Increase memory for c1, decrease c2, c3 unchanged - no net memory change': '==++/==--/====',
    'Increase CPU for c1, decrease c2 & c3 - net CPU decrease for Pod': '++==/--==/--==',
    'Increase memory for c1, decrease c2 & c3 - net memory decrease for Pod': '==++/==--/==--',
    'Increase CPU for c1 & c3, decrease c2 - net CPU increase for Pod': '++==/--==/++==',
    'Increase memory for c1 & c3, decrease c2 - net memory increase for Pod': '==++/==--/==++',
  },
  Sidecars: {
    'InitContainer, then sidecar - can increase & decrease CPU & memory of sidecar': '++++/==== ----/====',
    'Sidecar then InitContainer - can increase & decrease CPU & memory of sidecar': '++++/==== ----/====',
    'Resize sidecar along with container': '++++/--++ ----/++--',
  },
};

test.each(groups)(
  'KEP-1287: the group "%s" has the end-to-end test cases of the KEP, with their names and in their order',
  (group) => {
    const titles = matrixCases.filter((each) => each.group === group).map(({ title }) => title);
    expect(titles).toEqual(Object.keys(lists[group]));
  },
);

describe.each(matrixCases)('$group: $title', (matrixCase) => {
  const { group, title, containers, start, stages } = matrixCase;

  test('a matrix case makes the changes of its title', () => {
    expect(stages.map((stage) => movesOf(matrixCase, stage)).join(' ')).toBe(lists[group][title]);
  });

  test('a matrix case has all containers in each stage, with requests within the limits', () => {
    for (const point of [start, ...stages]) {
      expect(Object.keys(point).sort()).toEqual(containers.map(({ name }) => name).sort());
      for (const { cpu, memory } of Object.values(point)) {
        for (const { request = 0, limit = Infinity } of [cpu ?? {}, memory ?? {}])
          expect(request).toBeLessThanOrEqual(limit);
      }
    }
  });

  test('a matrix case has the QoS class and the containers of its group', () => {
    const kind = title.startsWith('Add memory') ? 'burstable' : group.split(',')[0]!.toLowerCase();
    expect(qosClass(containers, start)).toBe(kind === 'sidecars' ? 'guaranteed' : kind);
    expect(containers.map(({ name, role }) => `${name} ${role}`).join(', ')).toBe(containersOf(matrixCase));
  });
});

test('the case of a pod that remains Burstable ends with equal requests and limits', () => {
  const { containers, stages } = matrixCases.find(({ title }) => title.startsWith('Set requests == limits'))!;
  expect(qosClass(containers, stages[0]!)).toBe('guaranteed');
});

test.each([
  ['CPU', 'no net', 'cpu', 0],
  ['CPU', 'decrease', 'cpu', -1],
  ['CPU', 'increase', 'cpu', 1],
  ['memory', 'no net', 'memory', 0],
  ['memory', 'decrease', 'memory', -1],
  ['memory', 'increase', 'memory', 1],
] as const)('the sums of %s change as the title of the case says: %s', (resource, what, key, sign) => {
  const ending = what === 'no net' ? `no net ${resource} change` : `net ${resource} ${what} for Pod`;
  const { start, stages } = matrixCases.find(({ title }) => title.endsWith(ending))!;
  const total = (point: PodAmounts, of: keyof Amount): number =>
    Object.values(point).reduce((sum, amounts) => sum + amounts[key]![of]!, 0);
  for (const of of ['request', 'limit'] as const)
    expect(Math.sign(total(stages[0]!, of) - total(start, of))).toBe(sign);
});

/** Returns a stage in the notation of {@link lists}. */
const movesOf = ({ containers, start }: MatrixCase, stage: PodAmounts): string =>
  containers
    .filter(({ role }) => role !== 'init')
    .map(({ name }) => figures(amountsOf(start, name), amountsOf(stage, name)))
    .join('/');

const figures = (from: Amounts, to: Amounts): string =>
  (['cpu', 'memory'] as const)
    .flatMap((resource) => (['request', 'limit'] as const).map((of) => move(from[resource]?.[of], to[resource]?.[of])))
    .join('');

function move(from: number | undefined, to: number | undefined): string {
  if (from === undefined) return to === undefined ? '.' : 'a';
  if (to === undefined) return 'r';
  return to > from ? '+' : to < from ? '-' : '=';
}

/** Returns the expected containers in the order of their start. */
function containersOf({ group, title }: MatrixCase): string {
  if (group === 'Guaranteed, three containers') return 'c1 app, c2 app, c3 app';
  if (title.startsWith('InitContainer, then sidecar')) return 'i1 init, sidecar sidecar, c1 app';
  if (title.startsWith('Sidecar then InitContainer')) return 'sidecar sidecar, i1 init, c1 app';
  return group === 'Sidecars' ? 'sidecar sidecar, c1 app' : 'c1 app';
}

const app = (name: string): MatrixContainer => ({ name, role: 'app' });

test.each([
  [0, 2, 0],
  [1, 2, 1000],
  [100, 102, 10_000],
  [2500, 2560, 250_000],
  [1_000_000, 262_144, 100_000_000],
])('%d milliCPU are %d shares and a quota of %d', (milliCpu, shares, quota) => {
  expect(sharesOf(milliCpu)).toBe(shares);
  expect(quotaOf(milliCpu)).toBe(quota);
});

// The cases of kubelet's own test, TestCpuWeightToCPUShares.
test.each([
  [1, 2],
  [2, 28],
  [3, 54],
  [4, 80],
  [245, 6398],
  [10_000, 262_144],
])('kubelet reads weight %d as %d shares', (weight, shares) => {
  expect(sharesOfPodWeight(weight)).toBe(shares);
});

test('a weight may change when kubelet reads it as shares and writes it again', () => {
  expect(podWeight(102)).toBe(4);
  expect(podWeight(sharesOfPodWeight(4))).toBe(3);
});

describe('the values of a pod', () => {
  const both = [app('a'), app('b')];
  const full = { cpu: equal(100), memory: equal(64) };

  test('a pod of class Guaranteed has all limits', () => {
    const amounts = { a: full, b: full };
    expect(qosClass(both, amounts)).toBe('guaranteed');
    expect(podValues(both, amounts, 'guaranteed')).toEqual({ memory: 128 * MiB, quota: 20_000, shares: 204 });
  });

  test('a pod of class Burstable has only the limits that every container has', () => {
    const amounts = { a: full, b: { memory: equal(32) } };
    expect(qosClass(both, amounts)).toBe('burstable');
    expect(podValues(both, amounts, 'burstable')).toEqual({ memory: 96 * MiB, quota: undefined, shares: 102 });
  });

  test('a pod of class BestEffort has the minimum shares, for any resources of its containers', () => {
    expect(qosClass(both, { a: {}, b: {} })).toBe('besteffort');
    expect(podValues(both, { a: full, b: full }, 'besteffort')).toEqual({
      memory: undefined,
      quota: undefined,
      shares: 2,
    });
  });

  test('the values of a pod include an init container with its earlier sidecars, if they exceed the running containers', () => {
    const containers: MatrixContainer[] = [
      { name: 'sidecar', role: 'sidecar' },
      { name: 'init', role: 'init' },
      app('a'),
    ];
    const amounts = { sidecar: full, init: { cpu: equal(300), memory: equal(32) }, a: full };
    expect(podValues(containers, amounts, 'guaranteed')).toEqual({ memory: 128 * MiB, quota: 40_000, shares: 409 });
  });
});

const start = new Map([
  ['pod memory.max', '300'],
  ['pod cpu.max', '30000 100000'],
  ['a memory.max', '100'],
  ['a cpu.max', '10000 100000'],
  ['b memory.max', '200'],
  ['b cpu.max', '20000 100000'],
]);

const steps = (...texts: readonly string[]): ReportedStep[] =>
  texts.map((text, index) => {
    const [target = ''] = text.split(' ', 1);
    return { target, changes: readChanges(text.slice(target.length + 1)), at: index * 2, took: 1 };
  });

const broken = (end: Readonly<Record<string, string>>, ...texts: readonly string[]): string[] =>
  brokenRules(steps(...texts), start, new Map([...start, ...Object.entries(end)]));

test('readChanges reads a step with several values', () => {
  expect(readChanges('memory.max 100 -> max, cpu.max 10000 100000 -> max 100000, cpu shares 2 -> 102')).toEqual([
    { file: 'memory.max', from: '100', to: 'max' },
    { file: 'cpu.max', from: '10000 100000', to: 'max 100000' },
    { file: 'cpu shares', from: '2', to: '102' },
  ]);
});

test.each(['memory.high 1 -> 2', 'memory.max 1', 'memory.max 1 -> 2 -> 3'])('readChanges rejects "%s"', (text) => {
  expect(() => readChanges(text)).toThrow(text);
});

describe('steps that follow the rules', () => {
  test('accepts a pod that is raised before its containers', () => {
    const end = { 'pod memory.max': '500', 'a memory.max': '200', 'b memory.max': '300' };
    expect(broken(end, 'pod memory.max 300 -> 500', 'a memory.max 100 -> 200', 'b memory.max 200 -> 300')).toEqual([]);
  });

  test('accepts a container that is lowered before another is raised', () => {
    const end = { 'a memory.max': '150', 'b memory.max': '150' };
    expect(broken(end, 'b memory.max 200 -> 150', 'a memory.max 100 -> 150')).toEqual([]);
  });

  test('accepts two updates of a container whose memory and CPU change in opposite directions', () => {
    const end = {
      'pod memory.max': '250',
      'pod cpu.max': '40000 100000',
      'a memory.max': '50',
      'a cpu.max': '20000 100000',
    };
    expect(
      broken(
        end,
        'pod cpu.max 30000 100000 -> 40000 100000',
        'a memory.max 100 -> 50',
        'a cpu.max 10000 100000 -> 20000 100000',
        'pod memory.max 300 -> 250',
      ),
    ).toEqual([]);
  });

  test('accepts a limit that is removed from the pod before its container', () => {
    const end = { 'pod memory.max': 'max', 'a memory.max': 'max' };
    expect(broken(end, 'pod memory.max 300 -> max', 'a memory.max 100 -> max')).toEqual([]);
  });
});

describe('steps that break the rules', () => {
  const raised = { 'pod memory.max': '400', 'a memory.max': '200' };

  test('reports a container that is raised before the pod', () => {
    expect(broken(raised, 'a memory.max 100 -> 200', 'pod memory.max 300 -> 400')).toEqual([
      'memory.max: containers 400, pod 300',
      'memory.max: container raised, pod raised',
    ]);
  });

  test('reports a pod that is lowered before its container', () => {
    const end = { 'pod cpu.max': '25000 100000', 'a cpu.max': '5000 100000' };
    expect(broken(end, 'pod cpu.max 30000 100000 -> 25000 100000', 'a cpu.max 10000 100000 -> 5000 100000')).toEqual([
      expect.stringMatching(/^cpu.max: containers 0.3.*, pod 0.25$/),
      'cpu.max: pod lowered, container lowered',
    ]);
  });

  test('reports a container that is raised before another is lowered, although both fit into the pod limit', () => {
    const end = { 'pod memory.max': '350', 'a memory.max': '250', 'b memory.max': '100' };
    expect(
      broken(
        end,
        'pod memory.max 300 -> 450',
        'a memory.max 100 -> 250',
        'b memory.max 200 -> 100',
        'pod memory.max 450 -> 350',
      ),
    ).toEqual(['memory.max: pod raised, container raised, container lowered, pod lowered']);
  });

  test('reports a target that is not reached, and a change that was not requested', () => {
    expect(broken(raised, 'pod memory.max 300 -> 400', 'b memory.max 200 -> 150')).toEqual([
      'a memory.max ends as 100, not as 200',
      'b memory.max ends as 150, not as 200',
    ]);
  });

  test('reports a step that starts from another value than the current one', () => {
    expect(broken({ 'a memory.max': '80' }, 'a memory.max 90 -> 80')).toEqual([
      'a memory.max goes from 90, and was 100',
    ]);
  });

  test('reports a step that changes nothing', () => {
    expect(broken({}, 'a memory.max 100 -> 100')).toEqual(['a memory.max goes from 100 to 100']);
  });

  test('reports two updates of a container where one is enough', () => {
    const end = { 'a memory.max': '50', 'a cpu.max': '5000 100000' };
    expect(broken(end, 'a memory.max 100 -> 50', 'a cpu.max 10000 100000 -> 5000 100000')).toEqual([
      'a is updated 2 times',
    ]);
  });

  test('reports an update that raises and lowers limits', () => {
    const end = { 'pod cpu.max': '35000 100000', 'a memory.max': '50', 'a cpu.max': '15000 100000' };
    expect(
      broken(
        end,
        'pod cpu.max 30000 100000 -> 35000 100000',
        'a memory.max 100 -> 50, cpu.max 10000 100000 -> 15000 100000',
      ),
    ).toEqual(['a goes opposite ways in one update']);
  });

  test('reports a step that begins before the previous one has ended', () => {
    const [first, second] = steps('b memory.max 200 -> 150', 'a memory.max 100 -> 150');
    const end = new Map([...start, ['a memory.max', '150'], ['b memory.max', '150']]);
    expect(brokenRules([first!, { ...second!, at: 0.5 }], start, end)).toEqual([
      'the step for a begins at 0.5 ms, before 0.998 ms',
    ]);
  });
});
