import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { isSameEntry, type PodEntry, readCheckpoint } from '../../src/kubelet/checkpoint.ts';
import { checkpointText, type WrittenPod, withMemory } from '../support/checkpoint-text.ts';
import { cases } from '../support/property-cases.ts';

const readPods = (text: string): object => {
  const read = readCheckpoint(text);
  if (read.kind !== 'read') return read;
  const pods = [...read.pods].map(([uid, { containers, pod, isComplete }]) => [
    uid,
    { containers: Object.fromEntries(containers), pod, ...(!isComplete && { isComplete }) },
  ]);
  return { pods: Object.fromEntries(pods) as object, unrecognized: read.unrecognized };
};

describe('a checkpoint of kubelet', () => {
  test('a checkpoint of kubelet 1.36 without limits of the pod has the limits of the containers', () => {
    const text =
      '{"data":"{\\"entries\\":{\\"0f6f8ba3-0d0f-4f7f-9d62-2d4b5b3f0d11\\":{\\"ContainerResources\\":{\\"c1\\":{\\"limits\\":{\\"cpu\\":\\"200m\\",\\"memory\\":\\"64Mi\\"},\\"requests\\":{\\"cpu\\":\\"100m\\",\\"memory\\":\\"64Mi\\"}}},\\"PodLevelResources\\":null}}}","checksum":2394850921}';
    expect(readPods(text)).toEqual({
      pods: {
        '0f6f8ba3-0d0f-4f7f-9d62-2d4b5b3f0d11': {
          containers: { c1: { memory: 64 * MiB, milliCpu: 200 } },
          pod: undefined,
        },
      },
      unrecognized: 0,
    });
  });

  test('a checkpoint may have limits of the pod, and containers without limits', () => {
    const pod: WrittenPod = {
      ContainerResources: { web: {}, side: { limits: { memory: '1.5Gi' } } },
      PodLevelResources: { limits: { cpu: '2', memory: '2Gi' }, requests: {} },
    };
    expect(readPods(checkpointText({ u: pod }))).toEqual({
      pods: {
        u: { containers: { web: {}, side: { memory: 1536 * MiB } }, pod: { memory: 2048 * MiB, milliCpu: 2000 } },
      },
      unrecognized: 0,
    });
  });

  test('KEP-6030: a checkpoint of kubelet 1.37 names the volumes that kubelet resizes', () => {
    const volumesOf = (limits: NonNullable<WrittenPod['EmptyDirVolumeLimits']> | null): object => {
      const read = readCheckpoint(
        checkpointText({ u: { ...withMemory({ a: '64Mi' }), EmptyDirVolumeLimits: limits } }),
      );
      return read.kind === 'read' ? { unrecognized: read.unrecognized, ...read.pods.get('u') } : read;
    };
    expect(volumesOf({ cache: '64Mi', tmp: null })).toMatchObject({ volumes: new Set(['cache', 'tmp']) });
    for (const none of [null, {}]) expect(volumesOf(none)).not.toHaveProperty('volumes');
    // The limits of the containers are known nevertheless.
    expect(volumesOf('64Mi' as never)).toMatchObject({ unrecognized: 1, isComplete: true, volumes: 'unknown' });
  });

  test('a checkpoint of kubelet 1.33 has no limits of pods', () => {
    const data = JSON.stringify({ entries: { u: { ContainerResources: { a: { limits: { memory: '1e6' } } } } } });
    expect(readPods(JSON.stringify({ data, checksum: 1 }))).toEqual({
      pods: { u: { containers: { a: { memory: 1_000_000 } }, pod: undefined } },
      unrecognized: 0,
    });
  });

  test('the checkpoint of a node without pods is empty', () => {
    expect(readPods(checkpointText({}))).toEqual({ pods: {}, unrecognized: 0 });
    expect(readPods('{"data":"{\\"entries\\":{}}","checksum":0}')).toEqual({ pods: {}, unrecognized: 0 });
  });

  // checkpoint.speed.test.ts measures the duration.
  test('a checkpoint of 3,000 pods is read with all of them', () => {
    const containers = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`container-${n}`, '64Mi']));
    const entries = Object.fromEntries(Array.from({ length: 3000 }, (_, n) => [`pod-${n}`, withMemory(containers)]));
    const read = readCheckpoint(checkpointText(entries));
    expect(read.kind === 'read' && read.pods.size).toBe(3000);
  });

  test('a checkpoint is read with any checksum', () => {
    const data = JSON.stringify({ entries: { u: withMemory({ a: '64Mi' }) } });
    for (const checksum of [undefined, null, 'sha256:00', -1, {}, 1e300])
      expect(readPods(JSON.stringify({ data, checksum })), typeof checksum).toMatchObject({
        pods: { u: { containers: { a: { memory: 64 * MiB } } } },
      });
  });
});

describe('an unknown checkpoint', () => {
  test.each([
    ['an empty file', '', /JSON/],
    ['half a file', checkpointText({ u: withMemory({ a: '64Mi' }) }).slice(0, 60), /JSON/],
    ['not JSON', '\u0000\u0001\u0002', /JSON/],
    ['a JSON list', '[1, 2]', /^it has no string "data"$/],
    ['null', 'null', /^it has no string "data"$/],
    ['without data', '{"checksum":1}', /^it has no string "data"$/],
    ['data that is not a string', '{"data":{"entries":{}},"checksum":1}', /^it has no string "data"$/],
    ['truncated data', '{"data":"{\\"entries\\":{","checksum":1}', /JSON/],
    ['entries that are a list', '{"data":"{\\"entries\\":[]}","checksum":1}', /^its "entries" is not a JSON object$/],
    ['data that is null', '{"data":"null","checksum":1}', /^its "data" is not a JSON object$/],
  ])('an unknown checkpoint is unreadable: %s', (_what, text, why) => {
    expect(readCheckpoint(text)).toEqual({ kind: 'unreadable', why: expect.stringMatching(why) as string });
  });

  test('an amount in a checkpoint may be null or a number, but not a list or a boolean', () => {
    const memory = (value: unknown): object => ({
      ContainerResources: { a: { limits: { memory: value, cpu: null } } },
    });
    const entries = { none: memory(null), number: memory(4096), list: memory(['64Mi']), truth: memory(true) };
    expect(readPods(JSON.stringify({ data: JSON.stringify({ entries }) }))).toEqual({
      pods: {
        none: { containers: { a: {} }, pod: undefined },
        number: { containers: { a: { memory: 4096 } }, pod: undefined },
        list: { containers: {}, pod: undefined, isComplete: false },
        truth: { containers: {}, pod: undefined, isComplete: false },
      },
      unrecognized: 2,
    });
  });

  test('resources and limits in a checkpoint may be null, but not of another type', () => {
    const limits = (value: unknown): object => ({ ContainerResources: { a: { limits: value } } });
    const entries = {
      nothing: { ContainerResources: null },
      noLimits: limits(null),
      text: { ContainerResources: 'much' },
      list: limits(['64Mi']),
    };
    expect(readPods(JSON.stringify({ data: JSON.stringify({ entries }) }))).toEqual({
      pods: {
        nothing: { containers: {}, pod: undefined },
        noLimits: { containers: { a: {} }, pod: undefined },
        text: { containers: {}, pod: undefined, isComplete: false },
        list: { containers: {}, pod: undefined, isComplete: false },
      },
      unrecognized: 2,
    });
  });

  test('unknown entries of a checkpoint are counted and left out, and its other entries are read', () => {
    const entries = {
      good: withMemory({ a: '64Mi' }),
      number: 5,
      containers: { ContainerResources: { a: 'much', b: { limits: { memory: '32Mi' } } } },
      amounts: { ContainerResources: { a: { limits: { memory: 'a lot' } }, b: { limits: { cpu: true } } } },
      level: { ContainerResources: {}, PodLevelResources: 'big' },
    };
    const text = JSON.stringify({ data: JSON.stringify({ entries }), checksum: 1 });
    expect(readPods(text)).toEqual({
      pods: {
        good: { containers: { a: { memory: 64 * MiB } }, pod: undefined },
        containers: { containers: { b: { memory: 32 * MiB } }, pod: undefined, isComplete: false },
        amounts: { containers: {}, pod: undefined, isComplete: false },
        level: { containers: {}, pod: undefined, isComplete: false },
      },
      unrecognized: 5,
    });
  });

  test('a checkpoint may have names like __proto__, and zero as an amount', () => {
    const data = `{"entries":{"__proto__":{"ContainerResources":{"constructor":{"limits":{"memory":"0","cpu":"0"}}}}}}`;
    expect(readCheckpoint(JSON.stringify({ data }))).toEqual({
      kind: 'read',
      pods: new Map([
        [
          '__proto__',
          {
            containers: new Map([['constructor', {}]]),
            pod: undefined,
            requests: { containers: new Map([['constructor', {}]]), pod: undefined },
            isComplete: true,
          },
        ],
      ]),
      unrecognized: 0,
    });
  });
});

test('KEP-1287: any content of a checkpoint is read without an exception; a truncated checkpoint is unreadable', () => {
  const text = checkpointText({ u: withMemory({ a: '64Mi', b: '1Gi' }) });
  fc.assert(
    fc.property(fc.nat(text.length - 1), (length) => {
      expect(readCheckpoint(text.slice(0, length)).kind).toBe('unreadable');
    }),
    cases(200),
  );
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), fc.jsonValue(), (any, value) => {
      readCheckpoint(any);
      readCheckpoint(JSON.stringify({ data: any }));
      readCheckpoint(JSON.stringify({ data: JSON.stringify({ entries: value }) }));
      const read = readCheckpoint(
        JSON.stringify({ data: JSON.stringify({ entries: { u: value, v: withMemory({ a: '1Gi' }) } }) }),
      );
      expect(read.kind === 'read' && read.pods.get('v')?.containers.get('a')?.memory).toBe(1024 * MiB);
    }),
    cases(500),
  );
});

describe('two entries of a pod', () => {
  const resources = (memory: string, cpu: string) => ({ limits: { memory, cpu }, requests: { memory, cpu } });
  const first = { ContainerResources: { a: resources('64Mi', '1'), b: {} }, PodLevelResources: resources('1Gi', '2') };
  const entryOf = (value: object): PodEntry => {
    const text = JSON.stringify({ data: JSON.stringify({ entries: { u: value } }), checksum: 1 });
    const checkpoint = readCheckpoint(text);
    if (checkpoint.kind !== 'read') throw new Error(checkpoint.why);
    return checkpoint.pods.get('u')!;
  };
  const container = (change: object) => ({ ContainerResources: { ...first.ContainerResources, ...change } });

  test('two checkpoint entries of a pod are equal if their content is equal', () => {
    expect(isSameEntry(entryOf(first), entryOf(structuredClone(first)))).toBe(true);
    expect(isSameEntry(entryOf({}), entryOf({}))).toBe(true);
  });

  test.each([
    ['another limit', container({ a: { ...resources('64Mi', '1'), limits: { memory: '32Mi', cpu: '1' } } })],
    ['another CPU limit', container({ a: { ...resources('64Mi', '1'), limits: { memory: '64Mi', cpu: '2' } } })],
    ['another request', container({ a: { ...resources('64Mi', '1'), requests: { memory: '32Mi', cpu: '1' } } })],
    ['one container more', container({ c: {} })],
    ['another container', { ContainerResources: { a: resources('64Mi', '1'), c: {} } }],
    ['no limits of the pod', { PodLevelResources: null }],
    ['other requests of the pod', { PodLevelResources: { ...resources('1Gi', '2'), requests: { memory: '1Mi' } } }],
    ['a part of unknown shape', container({ b: [] })],
  ])('two entries of a pod differ with %s', (_what, change) => {
    const [one, other] = [entryOf(first), entryOf({ ...first, ...change })];
    expect([isSameEntry(one, other), isSameEntry(other, one)]).toEqual([false, false]);
  });
});
