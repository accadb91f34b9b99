import { describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type RequestedPod, readRequested } from '../../../src/sandbox/queue/request.ts';
import { resources } from '../../support/resize/fake-resizes.ts';

const period = 100_000;

/** A request for the given values only. */
const asking = (given: Partial<RequestedPod>): RequestedPod => ({
  pod: resources({}),
  containers: {},
  volumes: {},
  ...given,
});

describe('a ResizePod request', () => {
  test('converts a request to the desired values of a pod', () => {
    const { desired, memoryRequests } = readRequested({
      pod: resources({ cpu: '2', memory: 'max' }, { cpu: '1500m', memory: '1Gi' }),
      containers: {
        web: resources({ cpu: '1m', memory: '' }, { cpu: '1m' }),
        side: resources({ cpu: '-1', memory: '-1' }, { cpu: '1k' }),
      },
      volumes: { cache: '50%/web', logs: 'follow' },
    });
    expect(desired.pod).toStrictEqual({ memory: 'max', cpu: { quota: 200_000, period }, shares: 1536 });
    expect([...desired.containers]).toStrictEqual([
      ['web', { cpu: { quota: 1000, period }, shares: 2 }],
      ['side', { memory: 'max', cpu: { quota: 'max', period }, shares: 262_144 }],
    ]);
    expect([...desired.volumes]).toStrictEqual([
      ['cache', { kind: 'container-share', hundredths: 5000, container: 'web' }],
      ['logs', { kind: 'follow' }],
    ]);
    expect(memoryRequests).toStrictEqual({ pod: 1024 ** 3, containers: {} });
  });

  test('returns memory requests only for containers that request memory', () => {
    const { memoryRequests } = readRequested(
      asking({
        containers: { web: resources({}, { memory: '64Mi' }), side: resources({ memory: '32Mi' }) },
      }),
    );
    expect(memoryRequests).toStrictEqual({ containers: { web: 64 * MiB } });
  });

  test.each([
    ['a CPU limit of the pod', { pod: resources({ cpu: '1' }) }],
    ['a memory limit of the pod', { pod: resources({ memory: '1Gi' }) }],
    ['a CPU request of a container', { containers: { web: resources({}, { cpu: '1' }) } }],
    ['a memory request of a container', { containers: { web: resources({}, { memory: '1Gi' }) } }],
    ['the size of a volume', { volumes: { cache: '64Mi' } }],
  ])('accepts a request with only %s', (_, given) => {
    expect(() => readRequested(asking(given))).not.toThrow();
  });

  test.each([
    ['without values', {}],
    ['with a container without values', { containers: { web: resources({}) } }],
  ])('rejects a request %s', (_, given) => {
    expect(() => readRequested(asking(given))).toThrow(
      expect.objectContaining({
        code: 3,
        reason: 'INVALID_VALUE',
        message: 'resources, containers, volumes: "": the request changes nothing: name a limit, a request or a volume',
      }),
    );
  });
});

describe('an invalid ResizePod request', () => {
  test.each([
    [{ pod: resources({ cpu: 'x' }) }, 'resources.limits.cpu: "x": expected a CPU quantity such as "500m" or "1.5"'],
    [{ pod: resources({ memory: 'x' }) }, 'resources.limits.memory: "x": expected a memory quantity such as "256Mi"'],
    [
      { pod: resources({}, { cpu: '-1' }) },
      'resources.requests.cpu: "-1": expected a CPU quantity such as "500m" or "1.5"',
    ],
    [
      { containers: { web: resources({}, { memory: 'max' }) } },
      'containers["web"].requests.memory: "max": expected a memory quantity such as "256Mi"',
    ],
    [{ containers: { Web: resources({}) } }, 'containers["Web"]: "Web": not the name of a container'],
    [
      { containers: { ['w'.repeat(64)]: resources({}) } },
      `containers["${'w'.repeat(64)}"]: "${'w'.repeat(64)}": not the name of a container`,
    ],
    [
      { containers: { ['w'.repeat(65)]: resources({}) } },
      `containers["${'w'.repeat(64)}..."]: "${'w'.repeat(64)}...": not the name of a container`,
    ],
  ])('rejects an invalid request with field and value: %o', (given, message) => {
    expect(() => readRequested(asking(given))).toThrow(
      expect.objectContaining({ code: 3, reason: 'INVALID_VALUE', message }),
    );
  });

  test.each([
    [{ '../x': '1Mi' }, 'INVALID_VALUE', 'volumes["../x"]: "../x": not the name of a volume'],
    [
      { cache: '64Mo' },
      'INVALID_ANNOTATION',
      'volumes["cache"]: "64Mo": expected 256Mi, 50%, 50%/<container>, follow or fixed',
    ],
    [{ cache: '0' }, 'INVALID_ANNOTATION', 'volumes["cache"]: "0": a volume needs a size'],
  ])('rejects an invalid request with field and value: volumes %o', (volumes, reason, message) => {
    expect(() => readRequested(asking({ volumes }))).toThrow(expect.objectContaining({ code: 3, reason, message }));
  });

  test('rejects an invalid volume size with the name of the volume, and truncates a long value', () => {
    expect(() => readRequested(asking({ volumes: { cache: 'x'.repeat(81) } }))).toThrow(
      expect.objectContaining({
        context: { field: 'volumes["cache"]', volume: 'cache', asked: 'x'.repeat(80) },
        cause: expect.objectContaining({ reason: 'INVALID_ANNOTATION' }) as unknown,
      }),
    );
  });
});

describe('limits and requests of a ResizePod request', () => {
  const before = { pod: bytes(256 * MiB), containers: { web: bytes(64 * MiB) } };

  test.each([
    [{ pod: resources({ cpu: '1' }, { cpu: '1001m' }) }, 'resources.limits.cpu: "1"', '1001m'],
    [{ pod: resources({ memory: '255Mi' }) }, 'resources.limits.memory: "255Mi"', '256Mi'],
    [{ containers: { web: resources({ memory: '63Mi' }) } }, 'containers["web"].limits.memory: "63Mi"', '64Mi'],
    [
      { containers: { web: resources({ memory: '64Mi' }, { memory: '65Mi' }) } },
      'containers["web"].limits.memory: "64Mi"',
      '65Mi',
    ],
  ])('rejects a limit below its request: %o', (given, where, request) => {
    expect(() => readRequested(asking(given), before)).toThrow(
      expect.objectContaining({ code: 3, message: `${where}: the limit is below the request, ${request}` }),
    );
  });

  test.each([
    ['equal to the request', { pod: resources({ cpu: '1', memory: '256Mi' }, { cpu: '1' }) }],
    ['removed', { pod: resources({ cpu: '-1', memory: '-1' }, { cpu: '1001m' }) }],
    [
      'below the previous request but not the new one',
      { containers: { web: resources({ memory: '32Mi' }, { memory: '32Mi' }) } },
    ],
    ['of a container without a known request', { containers: { side: resources({ memory: '1Mi' }) } }],
  ])('accepts a limit that is %s', (_, given) => {
    expect(() => readRequested(asking(given), before)).not.toThrow();
  });
});

test('a container may be named like a property of every JavaScript object', () => {
  const limits = { cpu: '', memory: '64Mi' };
  const { desired } = readRequested({
    pod: { limits: { cpu: '', memory: '' }, requests: { cpu: '', memory: '' } },
    containers: { constructor: { limits, requests: { cpu: '', memory: '' } } },
    volumes: {},
  });
  expect(desired.containers.get('constructor')).toEqual({ memory: 64 * MiB });
});
