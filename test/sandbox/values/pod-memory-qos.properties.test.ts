import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Bytes, bytes, type Limit } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { memoryQosAfter } from '../../../src/sandbox/plan/memory-qos-change.ts';
import type { Settings } from '../../../src/sandbox/pods/pod-state.ts';
import { kubeletHigh, kubeletSettings, type Memory, NODE } from '../../support/resize/kubelet-pods.ts';

/** Values that kubelet has derived follow each change of limit and request, as kubelet would derive them. */

const PAGE = bytes(4096);
const size = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 1, max: 64 }).map((count) => count * 16 * MiB) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 900 }).map((count) => count * 1_000_001) },
);
/** The declaration of a container with a request. The request is at most the limit. */
const memory: fc.Arbitrary<Memory & { readonly request: number }> = fc
  .record({ one: size, other: fc.option(size, { nil: undefined }), isEqual: fc.boolean() })
  .map(({ one, other, isEqual }) => {
    if (other === undefined) return { request: one, limit: undefined };
    return isEqual ? { request: one, limit: one } : { request: Math.min(one, other), limit: Math.max(one, other) };
  });
const factor = fc.oneof(
  fc.constant(0.9),
  fc.integer({ min: 1, max: 100 }).map((hundredths) => hundredths / 100),
);
const feature = fc.constantFrom('MemoryQoS' as const, 'TieredReservation' as const);
/** The changed request: the others stay. */
const asked = fc.constantFrom<readonly ('limit' | 'request')[]>(['limit'], ['request'], ['limit', 'request']);

const sizeOf = (limit: number | undefined): Limit<Bytes> => (limit === undefined ? 'max' : bytes(limit));

/** Returns the settings after a resize from `before` to the requested parts of `after`. */
function resized(
  before: Memory & { readonly request: number },
  settings: Settings,
  wanted: { readonly limit?: Limit<Bytes>; readonly request?: Bytes },
  throttling: number,
): Settings {
  const change = {
    limit: sizeOf(before.limit),
    settings,
    requests: { declared: [bytes(before.request)], supposed: [] },
    wanted,
  };
  return memoryQosAfter(change, { pageSize: PAGE, sizes: () => [bytes(NODE.memory)], factor: throttling });
}

const given = fc.record({ before: memory, after: memory, factor, feature, asked });

type Given = typeof given extends fc.Arbitrary<infer Value> ? Value : never;

/** Returns the amounts after the resize, and the requested changes. */
function wantedOf({ before, after, asked: fields }: Given) {
  const limit = fields.includes('limit') ? after.limit : before.limit;
  const request = fields.includes('request') ? after.request : before.request;
  const wanted = {
    ...(fields.includes('limit') && { limit: sizeOf(limit) }),
    ...(fields.includes('request') && { request: bytes(request) }),
  };
  return { then: { limit, request }, wanted };
}

test('KEP-2570: memory.high, memory.min and memory.low have the values that kubelet would set after any resize', () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(given, (one) => {
      const { before, factor: throttling, feature: by } = one;
      const { then, wanted } = wantedOf(one);
      fc.pre(then.limit === undefined || then.request <= then.limit);
      const withHigh = (found: Settings, amounts: Memory): Settings => ({
        ...found,
        'memory.high': kubeletHigh(amounts, throttling),
      });
      const settings = withHigh(kubeletSettings(by, before), before);
      const changes = resized(before, settings, wanted, throttling);
      const reserved = Object.entries(settings).filter(([file, text]) => file !== 'memory.high' && text !== '0');
      const expected = {
        ...settings,
        // A container without memory.high gets no memory.high, because a user may have removed it.
        ...(settings['memory.high'] !== 'max' && withHigh({}, then)),
        ...Object.fromEntries(reserved.map(([file]) => [file, String(then.request)])),
      };
      // The kernel stores whole pages: a request that is the same in pages is not written again.
      const inPages = (found: Settings): Settings =>
        Object.fromEntries(
          Object.entries(found).map(([file, text]) => [
            file,
            text === 'max' ? text : String(Number(text) - (Number(text) % PAGE)),
          ]),
        );
      expect(inPages({ ...settings, ...changes })).toEqual(inPages(expected));
      for (const [file, text] of Object.entries(changes)) seen.add(`${by} ${file} ${text === 'max' ? 'max' : 'size'}`);
    }),
    { numRuns: 3000 },
  );
  const of = (by: string, ...files: string[]): string[] => files.map((file) => `${by} ${file}`);
  const highs = ['memory.high size', 'memory.high max'];
  expect([...seen].sort()).toEqual(
    [...of('MemoryQoS', ...highs), ...of('TieredReservation', ...highs, 'memory.low size', 'memory.min size')].sort(),
  );
});

test('KEP-2570: a memory.high that matches no formula and a memory.low that is not the request stay', () => {
  fc.assert(
    fc.property(given, size, size, (one, high, reserved) => {
      const { before, factor: throttling } = one;
      const set = bytes(high - (high % PAGE));
      fc.pre(![0.9, throttling].some((each) => kubeletHigh(before, each) === String(set)));
      // Without its own limit, or with a limit inherited from the pod, kubelet uses the memory of the node.
      fc.pre(![0.9, throttling].some((each) => kubeletHigh({ ...before, limit: undefined }, each) === String(set)));
      fc.pre(Math.abs(reserved - before.request) >= PAGE);
      const settings = { 'memory.high': String(set), 'memory.low': String(reserved) };
      expect(resized(before, settings, wantedOf(one).wanted, throttling)).toEqual({});
    }),
    { numRuns: 3000 },
  );
});
