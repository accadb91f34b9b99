import { MiB } from '../../../../src/core/quantities/sizes.ts';
import type { BadCase, BadInputNode, Refused } from './case.ts';
import {
  FAILED_PRECONDITION,
  INVALID_ARGUMENT,
  invalid,
  NO_PROTOBUF,
  NOT_FOUND,
  refused,
  truncated,
  withEntries,
} from './case.ts';

const call = 'ResizePod';

const of = (name: string, request: object, answer: Refused): BadCase => ({
  name,
  call,
  answer,
  request: ({ pod }) => ({ pod: { sandbox_id: pod.sandboxId }, ...request }),
});

/** Amounts of container `a`. The valid amounts of the same request are not applied either. */
const amounts = (resources: object, field: string, value: string, ...says: string[]): BadCase =>
  of(
    `${field} ${value.slice(0, 30)}`,
    { containers: { a: resources, held: { limits: { memory: '128Mi', cpu: '500m' } } }, volumes: { cache: '300Mi' } },
    invalid(`containers["a"].${field}`, value.slice(0, 30), ...says),
  );

const memory = (value: string, ...says: string[]): BadCase =>
  amounts({ limits: { memory: value } }, 'limits.memory', value, ...says);
const cpu = (value: string, ...says: string[]): BadCase =>
  amounts({ limits: { cpu: value } }, 'limits.cpu', value, ...says);

const volume = (name: string, value: string, answer: Refused): BadCase =>
  of(`volume ${name}=${JSON.stringify(value.slice(0, 20))}`, { volumes: { [name]: value } }, answer);

const grammar = (value: string): BadCase =>
  volume('cache', value, refused(INVALID_ARGUMENT, 'INVALID_ANNOTATION', 'volumes["cache"]', value.slice(0, 40)));

const container = (name: string, answer: Refused): BadCase =>
  of(
    `container ${JSON.stringify(name.slice(0, 30))}`,
    { containers: Object.fromEntries([[name, { limits: { memory: '128Mi' } }]]) },
    answer,
  );

const noName = (name: string): BadCase => container(name, invalid('containers[', name.slice(0, 30), 'not the name'));
const unknown = (name: string): BadCase =>
  container(name, refused(INVALID_ARGUMENT, 'UNKNOWN_CONTAINER', 'pod default/web', name));

const pod = (name: string, ref: object | ((node: BadInputNode) => object), answer: Refused): BadCase => ({
  name,
  call,
  answer,
  request: (node) => ({
    pod: typeof ref === 'function' ? (ref as (of: BadInputNode) => object)(node) : ref,
    resources: { limits: { memory: '256Mi' } },
  }),
});

const timeout = (seconds: number | string, nanos: number): BadCase =>
  of(
    `a timeout of ${seconds}s ${nanos}ns`,
    { timeout: { seconds, nanos }, containers: { a: { limits: { memory: '96Mi' } } } },
    invalid('timeout', `${seconds}s ${nanos}ns`),
  );

export const resizeCases: readonly BadCase[] = [
  ...['lots', '-5', '1', '4095', '-9223372036854775808', '9223372036854775807', '9Ei', '1e30', '1e400'].map((value) =>
    memory(value),
  ),
  memory('9'.repeat(1000)),
  ...['lots', '-1m', '1e30', '200000000', '0x10'].map((value) => cpu(value)),
  amounts({ limits: { memory: '64Mi' }, requests: { memory: '65Mi' } }, 'limits.memory', '64Mi', 'request', '65Mi'),
  amounts({ limits: { cpu: '100m' }, requests: { cpu: '101m' } }, 'limits.cpu', '100m', 'request', '101m'),
  ...['0', '0m'].map((value) => cpu(value, 'use "max"')),
  memory('0Mi', 'use "max"'),
  amounts({ requests: { cpu: '0' } }, 'requests.cpu', '0', 'leave it out'),
  amounts({ requests: { memory: '-1' } }, 'requests.memory', '-1'),
  amounts({ requests: { memory: '1Gi' } }, 'requests.memory', '1Gi', 'limit', '64Mi'),
  amounts({ requests: { cpu: '2' } }, 'requests.cpu', '2', 'limit', '100m'),
  of(
    'a request of the pod above its limit',
    { resources: { requests: { memory: '1Gi' } } },
    invalid('resources.requests.memory', '1Gi', 'limit', '320Mi'),
  ),
  of(
    'more memory than the node has',
    { containers: { a: { limits: { memory: '1Ti' }, requests: { memory: '1Ti' } } } },
    refused(FAILED_PRECONDITION, 'EXCEEDS_NODE', 'pod default/web', 'memory request of 1Ti'),
  ),
  of(
    'more CPU than the node has',
    { containers: { a: { limits: { cpu: '1000' }, requests: { cpu: '200' } } } },
    refused(FAILED_PRECONDITION, 'EXCEEDS_NODE', 'pod default/web', 'CPU request of 200'),
  ),
  of(
    'less memory than is in use',
    { containers: { a: { limits: { memory: '128Mi' } }, held: { limits: { memory: '16Mi' } } } },
    refused(FAILED_PRECONDITION, 'MEMORY_NOT_RECLAIMABLE', 'container held', String(16 * MiB), 'reclaimed'),
  ),
  of('no change', {}, invalid('nothing')),
  of('containers without a change', { containers: { a: {} } }, invalid('nothing')),
  timeout(0, 0),
  timeout(-1, 0),
  timeout(601, 0),
  timeout('9223372036854775807', 999_999_999),
  timeout(0, -2_147_483_648),
  ...['', '../a', 'A', 'a b', '__proto__', 'a'.repeat(100_000)].map(noName),
  ...['nobody', 'constructor'].map(unknown),
  volume('unknown', '64Mi', refused(INVALID_ARGUMENT, 'UNKNOWN_VOLUME', 'pod default/web', 'unknown')),
  volume('../cache', '64Mi', invalid('volumes["../cache"]')),
  volume('cache', '1Mi', refused(FAILED_PRECONDITION, 'VOLUME_IN_USE', 'cache', String(MiB), String(8 * MiB))),
  ...['', '0', '1', '-1', '64MB', '0%', '1001%', '50%/A', 'Follow', '9'.repeat(1000)].map(grammar),
  { name: 'no pod', call, answer: invalid('pod'), request: () => ({ resources: { limits: { memory: '256Mi' } } }) },
  pod('an empty id', { sandbox_id: '' }, invalid('pod.sandbox_id', '""')),
  pod('an ID with a path', { sandbox_id: '../../etc' }, invalid('pod.sandbox_id', '../../etc')),
  pod('an over-long id', { sandbox_id: 'f'.repeat(100_000) }, invalid('pod.sandbox_id', 'ffff')),
  pod('an unknown id', { sandbox_id: 'feedface' }, refused(NOT_FOUND, 'UNKNOWN_POD', 'sandbox_id', 'feedface')),
  pod('an unknown uid', { uid: 'feedface' }, refused(NOT_FOUND, 'UNKNOWN_POD', 'uid', 'feedface')),
  pod(
    'an unknown name',
    { name: { namespace: 'default', name: 'no' } },
    refused(NOT_FOUND, 'UNKNOWN_POD', 'default/no'),
  ),
  pod('a name without a namespace', { name: { name: 'web' } }, invalid('pod.name.namespace', '""')),
  pod(
    'an ambiguous prefix',
    ({ ambiguous }) => ({ sandbox_id: ambiguous.pod }),
    refused(FAILED_PRECONDITION, 'AMBIGUOUS_POD', 'sandbox_id', 'sandboxes'),
  ),
  pod(
    'a pod without its own cgroup',
    ({ bareSandboxes }) => ({ sandbox_id: bareSandboxes[0] }),
    refused(FAILED_PRECONDITION, 'CGROUP_UNAVAILABLE', 'pod default/loner', 'no cgroup of its own'),
  ),
  {
    name: 'truncated',
    call,
    answer: invalid('ResizePodRequest'),
    request: ({ pod: { sandboxId } }) => truncated(sandboxId),
  },
  { name: 'no protobuf', call, answer: invalid('ResizePodRequest'), request: () => NO_PROTOBUF },
  { name: 'an empty message', call, answer: invalid('pod'), request: () => Buffer.alloc(0) },
  {
    name: 'a hundred thousand containers',
    call,
    answer: invalid('ResizePodRequest', 'bytes'),
    request: ({ pod: { sandboxId } }) => withEntries(100_000, sandboxId, [3]),
  },
];
