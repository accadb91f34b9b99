import { MiB } from '../../../../src/core/quantities/sizes.ts';
import type { BadCase, PassedOn, Refused } from './case.ts';
import {
  FAILED_PRECONDITION,
  INT64,
  INVALID_ARGUMENT,
  invalid,
  NO_PROTOBUF,
  NOT_FOUND,
  passedOn,
  refused,
  truncated,
  withEntries,
} from './case.ts';

const call = 'UpdatePodSandboxResources';
const MEMORY = 'memory_limit_in_bytes';
const NAME = 'pod default/web';

const of = (name: string, request: object, answer: Refused | PassedOn): BadCase => ({
  name,
  call,
  answer,
  request: ({ pod }) => ({ pod_sandbox_id: pod.sandboxId, ...request }),
});

const field = (name: string, value: number | string, ...says: string[]): BadCase =>
  of(`${name} ${value}`, { resources: { [name]: value } }, invalid(`${NAME}, resources`, String(value), ...says));

const overhead = (name: string, resources: object, extra: object, ...says: string[]): BadCase =>
  of(`overhead: ${name}`, { resources, overhead: extra }, invalid(NAME, ...says));

const unified = (key: string, value: string, ...says: string[]): BadCase =>
  of(
    `unified ${key}=${JSON.stringify(value)}`,
    { resources: { unified: { [key]: value } } },
    invalid(NAME, key, ...says),
  );

const id = (name: string, pod_sandbox_id: string): BadCase => ({
  name: `an id ${name}`,
  call,
  isForwardedIfImplemented: true,
  request: () => ({ pod_sandbox_id, resources: { [MEMORY]: 256 * MiB } }),
  answer: refused(NOT_FOUND, 'UNKNOWN_POD', pod_sandbox_id.slice(0, 40)),
});

/** A case with the answer of a runtime without this call to the shim's request for the status of the pod. */
const asStatus = (name: string, idOf: (node: Parameters<BadCase['request']>[0]) => string): BadCase => ({
  name,
  call,
  isForwardedIfImplemented: true,
  request: (node) => ({ pod_sandbox_id: idOf(node), resources: { [MEMORY]: 256 * MiB } }),
  answer: {
    by: 'runtime',
    instead: { method: 'PodSandboxStatus', request: (node) => ({ pod_sandbox_id: idOf(node), verbose: true }) },
  },
});

export const podCases: readonly BadCase[] = [
  ...['-2', INT64.least, INT64.inexact, '1', '4095'].map((value) => field(MEMORY, value, MEMORY)),
  ...['-2', '999', '17592186044416', INT64.least, INT64.most].map((value) => field('cpu_quota', value)),
  ...['999', '1000001', INT64.most].map((value) => field('cpu_period', value)),
  field('cpu_period', '-1', 'must not be negative'),
  ...['-1', INT64.least].map((value) => field('cpu_shares', value, 'cpu_shares', 'must not be negative')),
  field('cpu_shares', INT64.most, 'cpu_shares'),
  overhead('negative', { [MEMORY]: 256 * MiB }, { [MEMORY]: -5 }, 'overhead', '-5'),
  overhead(
    'above what JavaScript can represent',
    { [MEMORY]: '9007199254736896' },
    { [MEMORY]: 8192 },
    '9007199254736896 + 8192',
  ),
  overhead('above the largest quota', { cpu_quota: '17592186044415' }, { cpu_quota: 5000 }, '17592186044415 + 5000'),
  unified('../x', '1', 'not a setting'),
  unified('cgroup.procs', '1', 'not a setting'),
  unified('memory.reclaim', '1M', 'not a setting'),
  unified('memory.events', '1', 'not a setting'),
  unified('memory.max', 'lots', '"lots"'),
  unified('cpu.max', '5', '5'),
  unified('memory.nonsense', '1', 'no such file'),
  of(
    'a valid limit next to a setting that the kernel rejects',
    { resources: { [MEMORY]: 256 * MiB, cpu_quota: 50_000, unified: { 'memory.high': 'lots', 'memory.low': '4096' } } },
    refused(INVALID_ARGUMENT, 'CGROUP_WRITE_FAILED', 'memory.high', '"lots"'),
  ),
  of(
    'settings that are applied before one that the kernel rejects',
    { resources: { unified: { 'memory.oom.group': '1', 'memory.low': '8192', 'pids.max': 'lots' } } },
    refused(INVALID_ARGUMENT, 'CGROUP_WRITE_FAILED', 'pids.max', '"lots"'),
  ),
  of(
    'less memory than is in use',
    { resources: { [MEMORY]: 16 * MiB } },
    refused(FAILED_PRECONDITION, 'MEMORY_NOT_RECLAIMABLE', NAME, String(16 * MiB), 'reclaimed'),
  ),
  id('unknown', 'feedfacefeedface'),
  id('with a path', '../../etc'),
  {
    ...id('over-long', 'f'.repeat(100_000)),
    answer: invalid('pod_sandbox_id', 'ffff'),
    isForwardedIfImplemented: false,
  },
  asStatus('an empty id', () => ''),
  asStatus('an ambiguous prefix', ({ ambiguous }) => ambiguous.pod),
  {
    name: 'a pod without its own cgroup',
    call,
    answer: passedOn,
    request: ({ bareSandboxes }) => ({ pod_sandbox_id: bareSandboxes[0], resources: { [MEMORY]: 256 * MiB } }),
  },
  { name: 'truncated', call, answer: passedOn, request: ({ pod }) => truncated(pod.sandboxId) },
  { name: 'no protobuf', call, answer: passedOn, request: () => NO_PROTOBUF },
  {
    name: 'a hundred thousand entries in field 4, which CRI does not define',
    call,
    answer: invalid(call, 'bytes'),
    request: ({ pod }) => withEntries(100_000, pod.sandboxId, [4]),
  },
];
