import { MiB } from '../../../../src/core/quantities/sizes.ts';
import type { BadCase, PassedOn, Refused } from './case.ts';
import {
  FAILED_PRECONDITION,
  INT64,
  invalid,
  limits,
  NO_PROTOBUF,
  nested,
  passedOn,
  refused,
  truncated,
  withEntries,
} from './case.ts';

const call = 'UpdateContainerResources';

/** Resources of one container, by default `a`. */
const of = (name: string, linux: object, answer: Refused | PassedOn, container = 'a'): BadCase => ({
  name,
  call,
  answer,
  request: ({ pod }) => ({ container_id: pod.id(container), linux }),
});

/** One value of one field. The rejection names the container, the field and the value. */
const field = (name: string, value: number | string, ...says: string[]): BadCase =>
  of(`${name} ${value}`, { [name]: value }, invalid('container a of pod default/web', `${value}`, ...says));

/** One key of `unified`. */
const unified = (key: string, value: string, ...says: string[]): BadCase =>
  of(
    `unified ${JSON.stringify(key.slice(0, 40))}=${JSON.stringify(value.slice(0, 40))}`,
    { unified: Object.fromEntries([[key, value]]) },
    invalid('container a of pod default/web', JSON.stringify(key.slice(0, 40)).slice(1, -1), ...says),
  );

const MEMORY = 'memory_limit_in_bytes';
const SWAP = 'memory_swap_limit_in_bytes';
/** An update that raises the pod before the runtime rejects it, so that the raise has to be rolled back. */
const raising = { ...limits(128, 20_000) };

const fields: readonly BadCase[] = [
  ...['-2', INT64.least, INT64.inexact, '4611686018427387904'].map((value) => field(MEMORY, value, MEMORY)),
  ...[1, 4095].map((value) => field(MEMORY, value, MEMORY, 'page')),
  ...['-2', INT64.least].map((value) => field('cpu_quota', value, 'cpu_quota')),
  ...['1', '999', '17592186044416', INT64.inexact, INT64.most].map((value) => field('cpu_quota', value)),
  ...['-1', INT64.least].map((value) => field('cpu_period', value, 'cpu_period', 'must not be negative')),
  ...['1', '999', '1000001', INT64.most].map((value) => field('cpu_period', value)),
  ...['-1', INT64.least].map((value) => field('cpu_shares', value, 'cpu_shares', 'must not be negative')),
  field('cpu_shares', INT64.most, 'cpu_shares'),
  ...['-2', INT64.least, INT64.inexact].map((value) => field(SWAP, value, SWAP)),
  ...['-1001', '1001', INT64.least, INT64.most].map((value) => field('oom_score_adj', value, 'oom_score_adj')),
  of('less swap than memory', { ...limits(96), [SWAP]: 64 * MiB }, invalid(SWAP, String(64 * MiB), String(96 * MiB))),
  ...['abc', '../x', '0-', '0\n1', '1'.repeat(5000)].flatMap((list) => [
    of(
      `cpuset_cpus ${JSON.stringify(list.slice(0, 20))}`,
      { cpuset_cpus: list },
      invalid('cpuset_cpus', 'expected a list of numbers'),
    ),
  ]),
  of('cpuset_mems ../x', { cpuset_mems: '../x' }, invalid('cpuset_mems', '../x')),
  of(
    'a page size of huge pages that is a path',
    { hugepage_limits: [{ page_size: '2MB/../../memory', limit: 1 }] },
    invalid('hugepage_limits', '2MB/../../memory'),
  ),
  of(
    'a sum of memory limits that JavaScript cannot represent',
    { [MEMORY]: '9007199254736896' },
    invalid('pod default/web', 'memory.max', '9007199'),
  ),
  of(
    "a sum of quotas above the kernel's maximum",
    { cpu_quota: '17592186044415' },
    invalid('pod default/web', 'cpu.max', '175921'),
  ),
];

const unifiedKeys: readonly BadCase[] = [
  unified('../x', '1', 'not a setting'),
  unified('/etc/passwd', '1', 'not a setting'),
  unified('memory.max/../../memory.max', '1', 'not a setting'),
  unified('', '1', 'not a setting'),
  unified('memory.high\0', '1', 'not a setting'),
  unified('__proto__', '1', 'not a setting'),
  unified(`memory.${'x'.repeat(5000)}!`, '1', 'not a setting'),
  unified('cgroup.procs', '1', 'not a setting'),
  unified('cgroup.freeze', '1', 'not a setting'),
  unified('memory.reclaim', '1M', 'not a setting'),
  unified('memory.pressure', 'some 150000 1000000', 'not a setting'),
  unified('memory.current', '1', 'not a setting'),
  unified('memory.high', '', 'one line'),
  unified('memory.high', '1048576\n2097152', 'one line'),
  unified('memory.high', '1048576\0', 'one line'),
  unified('memory.high', '9'.repeat(2000), 'one line'),
  unified('memory.max', 'lots', '"lots"'),
  unified('memory.max', '0', '"0"', 'page'),
  unified('memory.max', '16e', '"16e"'),
  unified('memory.max', '99999999999999999999', '"99999999999999999999"'),
  unified('cpu.max', 'abc 100000', '"abc 100000"'),
  unified('cpu.max', '200k', '"200k"'),
  ...[unified('cpu.max', '500 100000'), unified('cpu.max', '5000 5')].map((one) => ({
    ...one,
    answer: invalid('container a of pod default/web', 'cpu.max'),
  })),
];

const ids: readonly BadCase[] = [
  ['unknown', 'feedfacefeedface'],
  ['empty', ''],
  ['with a path', '../../etc'],
].map(([name, container_id]) => ({
  name: `an id ${name}`,
  call,
  answer: passedOn,
  request: () => ({ container_id, linux: raising }),
}));

const states: readonly BadCase[] = [
  ...['ended', 'made', 'paused'].map((name) =>
    of(`a quota of 5 us, container ${name}`, { cpu_quota: 5 }, invalid(`container ${name} of`, '5'), name),
  ),
  ...['ended', 'made'].map((name) => of(`a valid update, container ${name}`, limits(48), passedOn, name)),
  of('a valid update, container paused', limits(64), passedOn, 'paused'),
  ...['held'].map((name) =>
    of(
      `less memory than is in use, container ${name}`,
      limits(16),
      refused(FAILED_PRECONDITION, 'MEMORY_NOT_RECLAIMABLE', `container ${name}`, String(16 * MiB), 'reclaimed'),
      name,
    ),
  ),
];

const refusedByRuntime: readonly BadCase[] = [
  of('a CPU that the node does not have, and more memory', { ...raising, cpuset_cpus: '4096' }, passedOn),
  of('a CPU that the node does not have, and no limit', { cpuset_cpus: '4096' }, passedOn),
  of('an unknown setting, and more memory', { ...raising, unified: { 'memory.nonsense': '1' } }, passedOn),
  of('an unknown setting, and no limit', { unified: { 'memory.nonsense': '1' } }, passedOn),
  of('a value that the kernel rejects', { ...raising, unified: { 'memory.high': 'lots' } }, passedOn),
  of('a period of 0 and no other value', { cpu_period: 0, cpu_quota: 0 }, passedOn),
];

const shapes: readonly BadCase[] = [
  {
    name: 'an over-long id',
    call,
    answer: invalid('container_id', 'ffff'),
    request: () => ({ container_id: 'f'.repeat(100_000), linux: raising }),
  },
  {
    name: 'both linux and windows',
    call,
    answer: invalid('container a of pod default/web', 'windows', 'linux'),
    request: ({ pod }) => ({ container_id: pod.id('a'), linux: limits(64), windows: { cpu_shares: 5 } }),
  },
  { name: 'no resources', call, answer: passedOn, request: ({ pod }) => ({ container_id: pod.id('a') }) },
  { name: 'an empty message', call, answer: passedOn, request: () => Buffer.alloc(0) },
  {
    name: 'an ambiguous prefix',
    call,
    answer: passedOn,
    request: ({ ambiguous }) => ({ container_id: ambiguous.container, linux: raising }),
  },
  { name: 'truncated', call, answer: passedOn, request: ({ pod }) => truncated(pod.id('a')) },
  { name: 'no protobuf', call, answer: passedOn, request: () => NO_PROTOBUF },
  { name: 'nested groups', call, answer: passedOn, request: nested },
  {
    name: 'a million keys of unified',
    call,
    answer: invalid(call, 'bytes'),
    request: ({ pod }) => withEntries(1_000_000, pod.id('a'), [2, 9]),
  },
  {
    name: 'a hundred thousand annotations',
    call,
    answer: invalid(call, 'bytes'),
    request: ({ pod }) => withEntries(100_000, pod.id('a'), [4]),
  },
  {
    name: 'ten thousand keys of unified',
    call,
    answer: invalid('unified', '"key0"'),
    request: ({ pod }) => withEntries(10_000, pod.id('a'), [2, 9]),
  },
];

export const containerCases = [...fields, ...unifiedKeys, ...ids, ...states, ...refusedByRuntime, ...shapes];
