import fc from 'fast-check';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';
import type { JournalledTransaction, PodRecord, VolumeRecord } from '../../../src/sandbox/journal/record.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';

/** Arbitrary records, for the property tests of the journal. */

const plain = { noNullPrototype: true } as const;
const amount = fc.oneof(fc.maxSafeNat(), fc.constantFrom(0, 1, Number.MAX_SAFE_INTEGER));
const size = amount.map(bytes);
const max = fc.constant('max' as const);
const limit = fc.oneof(size, max);
const cpu = fc.record({ quota: fc.oneof(amount.map(microseconds), max), period: amount.map(microseconds) }, plain);
// Lone surrogates have no UTF-8: JSON escapes them.
const text = fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('\ud800', '\udfff', 'a\0b'));
const change = <Value>(value: fc.Arbitrary<Value>) => fc.record({ from: value, to: value }, plain);
const kind = <Kind extends string>(name: Kind) => fc.constant(name);

const steps: { [Kind in Step['kind']]: fc.Arbitrary<Extract<Step, { kind: Kind }>> } = {
  volume: fc.record({ kind: kind('volume'), volume: text, from: size, to: size }, plain),
  'pod-memory': fc.record({ kind: kind('pod-memory'), from: limit, to: limit }, plain),
  'pod-cpu': fc.record({ kind: kind('pod-cpu'), from: cpu, to: cpu }, plain),
  'pod-weight': fc.record({ kind: kind('pod-weight'), from: amount.map(cpuWeight), to: amount.map(cpuWeight) }, plain),
  'pod-unified': fc.record({ kind: kind('pod-unified'), key: text, from: text, to: text }, plain),
  burst: fc.record(
    { kind: kind('burst'), id: text, from: amount.map(microseconds), to: amount.map(microseconds) },
    { ...plain, requiredKeys: ['kind', 'from', 'to'] },
  ),
  container: fc.record(
    {
      kind: kind('container'),
      id: text,
      memory: change(limit),
      cpu: change(cpu),
      shares: change(amount.map(cpuShares)),
      swap: change(limit),
      settings: fc.dictionary(fc.stringMatching(/^[a-z_]{1,9}\.[a-z0-9_.]{1,9}$/), change(text), {
        maxKeys: 3,
        noNullPrototype: true,
      }),
    },
    { ...plain, requiredKeys: ['kind', 'id'] },
  ),
  runtime: fc.record({ kind: kind('runtime') }, plain),
};

const volumeName = fc.oneof(
  fc.stringMatching(/^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/),
  fc.constantFrom('constructor', 'tostring', '0', '1'),
);

const policy = fc.oneof(
  fc.record({ kind: kind('absolute'), size }, plain),
  fc.record({ kind: kind('share'), hundredths: amount }, plain),
  fc.record({ kind: kind('container-share'), hundredths: amount, container: volumeName }, plain),
  fc.record({ kind: kind('follow') }, plain),
  fc.record({ kind: kind('fixed') }, plain),
);
const volume: fc.Arbitrary<VolumeRecord> = fc.record(
  {
    policy,
    source: fc.constantFrom('seen', 'asked', 'found'),
    annotated: fc.boolean(),
    mount: fc.record({ device: fc.tuple(fc.nat(), fc.nat()).map((parts) => parts.join(':')), size }, plain),
    mounted: size,
  },
  { ...plain, requiredKeys: ['policy', 'source', 'annotated'] },
);
// toStrictEqual takes a property of this name for the object's class.
const ordinaryName = volumeName.filter((name) => name !== 'constructor');
const asked = fc.record({ policy, annotated: fc.boolean() }, plain);

const high = fc.record(
  { cgroup: text, memoryHigh: limit, isUnmarked: fc.constant(true as const) },
  { ...plain, requiredKeys: ['cgroup', 'memoryHigh'] },
);

const transaction: fc.Arbitrary<JournalledTransaction> = fc.record(
  {
    id: text,
    startedAt: fc.maxSafeNat(),
    steps: fc.array(fc.oneof(...Object.values<fc.Arbitrary<Step>>(steps)), { maxLength: 12 }),
    allocated: fc.dictionary(ordinaryName, asked, { maxKeys: 3, noNullPrototype: true }),
    undoing: fc.boolean(),
    highs: fc.array(high, { maxLength: 3 }),
    failed: text,
  },
  { ...plain, requiredKeys: ['id', 'startedAt', 'steps', 'undoing', 'highs'] },
);

// A round trip through JSON: its parser turns -0 into 0, and sets `__proto__` as an own property.
const json = fc.jsonValue({ stringUnit: 'binary' }).map((value) => JSON.parse(JSON.stringify(value)) as unknown);

export const anyRecord: fc.Arbitrary<PodRecord> = fc.record(
  {
    podUid: fc.oneof(fc.uuid(), text),
    sandboxId: text,
    transaction,
    holds: fc.array(high, { minLength: 1, maxLength: 3 }),
    volumes: fc.array(fc.tuple(volumeName, volume), { maxLength: 5 }).map((pairs) => new Map(pairs)),
    resizes: fc.array(json, { maxLength: 3 }),
  },
  { ...plain, requiredKeys: ['podUid', 'sandboxId', 'volumes'] },
);
