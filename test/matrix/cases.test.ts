import { describe, expect, test } from 'vitest';
import { type Amount, type Amounts, type PodAmounts, amountsOf } from './amounts.ts';
import { type Group, type MatrixCase, groups, matrixCases } from './cases.ts';
import { qosClass } from './kubelet-values.ts';

/**
 * The lists of KEP-1287: each title with the changes that it describes. A word is a stage of a case, compared with its
 * start. Containers are separated by slashes. Each has CPU request, CPU limit, memory request and memory limit: `+` up,
 * `-` down, `=` unchanged, `a` added, `r` removed, `.` never set. Init containers that end are left out.
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
