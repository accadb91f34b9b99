import { beforeEach, describe, expect, test } from 'vitest';
import { type Bytes, bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { VolumeRecord } from '../../../src/sandbox/journal/record.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import {
  assertWithinSizeLimits,
  excessWarning,
  VolumePolicies,
  withoutOverdue,
} from '../../../src/sandbox/volumes/policies.ts';
import { parseVolumeAnnotation } from '../../../src/tmpfs/sizes.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const POD = 'sandbox';
const cache = (size: number, device = '0:50') => ({ name: 'cache', size: mi(size), device });
const absolute = (size: number) => ({ kind: 'absolute', size: mi(size) }) as const;

let policies: VolumePolicies;
beforeEach(() => {
  policies = new VolumePolicies();
});
const policy = () => policies.policy(POD, 'cache');
const ask = (size: number, annotated = false) =>
  policies.adopt(POD, [['cache', { policy: absolute(size), annotated }]]);
/** Replaces the policies by new ones with the records of the journal. */
const restart = (): void => {
  const records = policies.records(POD);
  policies = new VolumePolicies();
  policies.restore(POD, records);
};

describe('the policy that is derived when a volume is first seen', () => {
  test('KEP-6030: the policy of a volume is derived once and kept when the limit changes, also after a restart', () => {
    policies.observe(POD, [cache(128)], mi(128));
    restart();
    expect(policies.observe(POD, [cache(128)], mi(192))).toEqual([]);
    expect(policy()).toEqual({ kind: 'follow', atMost: mi(128) });
  });

  test('the policy is not derived again if the pod limit becomes equal to the volume size', () => {
    policies.observe(POD, [cache(64)], mi(128));
    restart();
    policies.observe(POD, [cache(64)], mi(64));
    expect(policy()).toEqual({ kind: 'fixed' });
  });

  test('the policy is not derived for a volume with an annotation', () => {
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': 'fixed' });
    policies.observe(POD, [cache(128)], mi(128));
    expect([policy(), policies.records(POD).size]).toEqual([{ kind: 'fixed' }, 0]);
  });
});

describe('a volume that follows the pod limit on a node with 256 MiB for pods', () => {
  const sizeFor = (pod: number, size: number): Bytes | undefined =>
    policies.targets(POD, [{ name: 'cache', size: mi(size) }], mi(pod), new Map()).get('cache');

  test('a volume grows with the pod limit up to the memory of the node, and shrinks with the limit', () => {
    policies = new VolumePolicies({ nodeMemory: () => mi(256), declared: () => new Map([['cache', {}]]) });
    policies.observe(POD, [cache(128)], mi(128));
    expect([sizeFor(192, 128), sizeFor(512, 128), sizeFor(64, 256)]).toEqual([mi(192), mi(256), mi(64)]);
  });

  test('a volume that is larger than the memory of the node does not grow, and shrinks with the limit', () => {
    policies = new VolumePolicies({ nodeMemory: () => mi(256) });
    policies.observe(POD, [cache(384)], mi(384));
    expect([sizeFor(512, 384), sizeFor(320, 384)]).toEqual([undefined, mi(320)]);
  });

  test('a volume with a larger size limit and pod limit stays at the memory of the node, and shrinks with the limit', () => {
    policies = new VolumePolicies({
      nodeMemory: () => mi(256),
      declared: () => new Map([['cache', { sizeLimit: mi(512) }]]),
    });
    policies.observe(POD, [cache(256)], mi(1024));
    expect([sizeFor(2048, 256), sizeFor(128, 256)]).toEqual([undefined, mi(128)]);
  });
});

describe("A10: a volume's size limit in the spec", () => {
  const limits = (pod: number): Bytes | undefined =>
    policies.targets(POD, [{ name: 'cache', size: mi(1) }], mi(pod), new Map()).get('cache');
  /** The spec is known only once the API server is watched. */
  const spec = (sizeLimit?: number): void => {
    const volume = sizeLimit === undefined ? {} : { sizeLimit: mi(sizeLimit) };
    const records = policies.records(POD);
    policies = new VolumePolicies({ declared: (id) => (id === POD ? new Map([['cache', volume]]) : undefined) });
    policies.restore(POD, records);
  };

  test('a size limit equal to the pod limit stops the volume when the pod grows, and the volume shrinks with the pod', () => {
    spec(128);
    policies.observe(POD, [cache(128)], mi(128));
    expect(policy()).toEqual({ kind: 'follow', atMost: mi(128) });
    expect([limits(256), limits(64)]).toEqual([mi(128), mi(64)]);
  });

  test('a size limit above the pod limit is the maximum to which the volume grows', () => {
    spec(200);
    policies.observe(POD, [cache(128)], mi(128));
    expect([limits(160), limits(256)]).toEqual([mi(160), mi(200)]);
  });

  test('a size limit below the pod limit is the size of the volume, unless the pod limit is lower', () => {
    spec(64);
    policies.observe(POD, [cache(64)], mi(128));
    expect([limits(256), limits(32)]).toEqual([mi(64), mi(32)]);
    policies.recordMounts(POD, [cache(32)]);
    expect(limits(256)).toEqual(mi(64));
  });

  test('a size limit bounds a volume that an earlier shim has grown above it', () => {
    policies.observe(POD, [cache(128)], mi(128));
    policies.recordMounts(POD, [cache(256)]);
    spec(128);
    expect(limits(256)).toEqual(mi(128));
  });

  test('a size limit makes a larger volume fixed, and does not restrict the policy of a request or an annotation', () => {
    spec(64);
    policies.observe(POD, [cache(100)], mi(128));
    expect(policy()).toEqual({ kind: 'fixed' });
    ask(96);
    expect(policy()).toEqual(absolute(96));
    policies = new VolumePolicies();
    spec(64);
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': 'follow' });
    expect(policy()).toEqual({ kind: 'follow' });
  });

  test('KEP-6030: a volume that was within its size limit follows a changed one, and a larger volume does not', () => {
    const shrinksTo = (size: number) =>
      policies.targets(POD, [{ name: 'cache', size: mi(size) }], mi(128), new Map()).get('cache');
    spec(64);
    policies.observe(POD, [cache(64)], mi(128));
    spec(32);
    expect(shrinksTo(64)).toEqual(mi(32));
    spec(96);
    expect(limits(128)).toEqual(mi(96));
    // Without the spec, the lower size limit still counts.
    spec(32);
    policies.observe(POD, [cache(32)], mi(128));
    restart();
    expect(limits(128)).toEqual(mi(32));
    policies = new VolumePolicies();
    policies.observe(POD, [cache(64)], mi(128));
    spec(32);
    expect([shrinksTo(64), limits(128)]).toEqual([undefined, undefined]);
  });

  test('a volume without a size limit follows the pod limit', () => {
    spec();
    policies.observe(POD, [cache(128)], mi(128));
    expect(limits(256)).toEqual(mi(256));
  });
});

describe('a volume whose size limit is unknown', () => {
  const target = (pod: number, size: number): Bytes | undefined =>
    policies.targets(POD, [{ name: 'cache', size: mi(size) }], mi(pod), new Map()).get('cache');

  test('KEP-6030: a volume with an unknown size limit shrinks with the pod and grows only to the size of its mount by kubelet', () => {
    policies.observe(POD, [cache(128)], mi(128));
    expect([target(384, 128), target(64, 128)]).toEqual([undefined, mi(64)]);
    policies.recordMounts(POD, [cache(64)]);
    restart();
    policies.observe(POD, [cache(64)], mi(64));
    expect([target(384, 64), target(96, 64)]).toEqual([mi(128), mi(96)]);
    // kubelet mounts it with the smaller limit of the pod.
    const { policy: seen, source, annotated, mounted = mi(0) } = policies.records(POD).get('cache')!;
    policies = new VolumePolicies();
    policies.restore(POD, new Map([['cache', { policy: seen, source, annotated, mounted }]]));
    expect(policy()).toEqual({ kind: 'follow', atMost: mi(128) });
    policies.observe(POD, [cache(64, '0:51')], mi(64));
    expect([target(384, 64), policy()]).toEqual([mi(128), { kind: 'follow', atMost: mi(128) }]);
    // The volume's maximum is at least the size of each mount by kubelet.
    policies.observe(POD, [cache(256, '0:52')], mi(256));
    expect(policy()).toEqual({ kind: 'follow', atMost: mi(256) });
  });

  test('a volume that has grown with the spec keeps its size while the spec is unknown', () => {
    policies = new VolumePolicies({ declared: () => new Map([['cache', { sizeLimit: mi(256) }]]) });
    policies.observe(POD, [cache(128)], mi(128));
    policies.recordMounts(POD, [cache(256)]);
    restart();
    policies.observe(POD, [cache(256)], mi(256));
    expect([target(384, 256), target(192, 256)]).toEqual([undefined, mi(192)]);
  });

  test('a volume from a record of version 0.1.0 does not grow above its current size', () => {
    policies.restore(
      POD,
      new Map([['cache', { policy: { kind: 'follow' }, source: 'seen', annotated: false, mount: cache(128) }]]),
    );
    policies.observe(POD, [cache(128)], mi(128));
    expect([target(384, 128), policies.records(POD).get('cache')?.mounted]).toEqual([undefined, mi(128)]);
  });

  test('a volume with an unknown size limit grows with the pod if a request or an annotation says so', () => {
    policies.observe(POD, [cache(128)], mi(128));
    policies.adopt(POD, [['cache', { policy: { kind: 'follow' }, annotated: false }]]);
    expect(target(384, 128)).toBe(mi(384));
    policies = new VolumePolicies();
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': '50%' });
    expect(target(384, 128)).toBe(mi(192));
  });
});

test('an annotation with a size or a share above the size limit in the spec gives the volume its size limit', () => {
  policies = new VolumePolicies({ declared: () => new Map([['cache', { sizeLimit: mi(64) }]]) });
  const target = (value: string, size: number): Bytes | undefined => {
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': value });
    return policies
      .targets(POD, [{ name: 'cache', size: mi(size) }], mi(128), new Map([['web', mi(100)]]))
      .get('cache');
  };
  for (const value of ['192Mi', '100%', '80%/web', 'follow']) expect(target(value, 32)).toBe(mi(64));
  // A volume that is already larger keeps its size, because it may store that much.
  expect([target('192Mi', 100), target('48Mi', 100)]).toEqual([undefined, mi(48)]);
});

describe('KEP-6030: a volume that kubelet resizes itself', () => {
  let isKubelets: boolean;
  beforeEach(() => {
    isKubelets = true;
    policies = new VolumePolicies({ isKubelets: () => isKubelets });
  });
  const target = (): Bytes | undefined =>
    policies.targets(POD, [{ name: 'cache', size: mi(64) }], mi(128), new Map()).get('cache');

  test('an annotation, a request and the pod limit have no effect on a volume that kubelet resizes', () => {
    policies.observe(POD, [cache(64)], mi(64));
    expect([policy(), target()]).toEqual([{ kind: 'fixed', by: 'kubelet' }, undefined]);
    ask(96);
    expect([target(), policies.ineffective(POD)]).toEqual([undefined, ['cache']]);
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': '50%' });
    expect([target(), policies.ineffective(POD)]).toEqual([undefined, ['cache']]);
  });

  test('a size that kubelet sets does not replace the policy of a volume', () => {
    policies.observe(POD, [cache(64)], mi(64));
    expect(policies.observe(POD, [cache(96)], mi(64))).toEqual([
      { name: 'cache', from: mi(64), to: mi(96), isKubelets: true },
    ]);
    isKubelets = false;
    expect(policy().kind).toBe('follow');
  });

  test('an annotation has its effect once kubelet does not resize the volume', () => {
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': '75%' });
    isKubelets = false;
    expect([target(), policies.ineffective(POD)]).toEqual([mi(96), []]);
  });
});

describe('a volume of 128 MiB that stores 24 MiB in a pod with a limit of 128 MiB', () => {
  test.each([
    ['a size that fits applies', 32, 32, 128, 32],
    ['a size that was due and does not fit is left out', 16, 16, 128, undefined],
    ['a size that was due and does not fit is left out when the limit rises', 16, 16, 256, undefined],
    ['a size below the one that was due is kept, and rejects the resize', 16, 8, 128, 8],
    ['a size that was not due is kept, and rejects the resize', undefined, 16, 128, 16],
    ['a lowered limit shrinks the volume to the limit in place of the size that was due', 16, 16, 64, 64],
  ])('KEP-6030: %s', (_, due, size, podLimit, expected) => {
    const pod = { metadata: { uid: 'uid-1' } } as PodDescription;
    const state = { memory: mi(128), volumes: [{ name: 'cache', size: mi(128) }] } as unknown as PodState;
    const measure = () => ({ size: mi(128), used: mi(24), pageSize: 4096 }) as never;
    const present = new Map(due === undefined ? [] : [['cache', mi(due)]]);
    const sizes = withoutOverdue({ measure }, pod, state, new Map([['cache', mi(size)]]), {
      present,
      podLimit: mi(podLimit),
    });
    expect(sizes.get('cache')).toBe(expected === undefined ? undefined : mi(expected));
  });
});

describe('a volume request and the size limit in the spec', () => {
  const pod = { metadata: { uid: 'uid-1', name: 'web', namespace: 'default' } } as PodDescription;
  const request = (key: string) => () =>
    assertWithinSizeLimits(
      pod,
      {
        volumes: new Map([
          ['cache', { sizeLimit: mi(64) }],
          ['other', {}],
        ]),
      },
      new Map(
        [parseVolumeAnnotation(`volume.cri-resize-shim.io/${key.split('=')[0]!}`, key.split('=')[1]!)].map(
          ({ volume, policy }) => [volume, policy],
        ),
      ),
      mi(128),
      new Map([['web', mi(100)]]),
    );

  test.each(['cache=192Mi', 'cache=51%', 'cache=80%/web'])(
    'KEP-6030: a volume request above the size limit is rejected with volume and size limit: %s',
    (key) => {
      expect(request(key)).toThrow(
        expect.objectContaining({
          code: 9,
          reason: 'VOLUME_EXCEEDS_SIZE_LIMIT',
          context: expect.objectContaining({ volume: 'cache', found: String(64 * MiB) }) as object,
        }),
      );
    },
  );

  test.each([
    'cache=64Mi',
    'cache=50%',
    'cache=64%/web',
    'cache=follow',
    'cache=fixed',
    'cache=90%/none',
    'other=192Mi',
  ])('accepts a volume request that does not exceed a size limit: %s', (key) => expect(request(key)).not.toThrow());
});

test('a volume that is larger than its size limit is reported with the eviction by kubelet', () => {
  expect(excessWarning(mi(96), mi(128), mi(64))).toBe(
    'has 96Mi, more than its sizeLimit, 64Mi: kubelet evicts the pod if more is stored',
  );
  expect([excessWarning(mi(64), mi(128), mi(64)), excessWarning(mi(96), mi(128))]).toEqual([undefined, undefined]);
});

describe('A10: volumesFollow: never', () => {
  test('with volumesFollow: never, a volume follows the pod limit only if an annotation says so', () => {
    policies = new VolumePolicies({ follow: 'never', declared: () => new Map([['cache', { sizeLimit: mi(128) }]]) });
    policies.observe(POD, [cache(128)], mi(128));
    expect(policy()).toEqual({ kind: 'fixed' });
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': 'follow' });
    expect(policy()).toEqual({ kind: 'follow' });
  });

  test('with volumesFollow: never, a volume that an earlier shim has recorded as following is fixed', () => {
    policies.observe(POD, [cache(128)], mi(128));
    const records = policies.records(POD);
    policies = new VolumePolicies({ follow: 'never' });
    policies.restore(POD, records);
    expect(policy()).toEqual({ kind: 'fixed' });
  });
});

describe('a size that another process sets on a mounted volume', () => {
  test('a size that another process sets becomes the policy and is reported once, for any previous policy', () => {
    for (const before of [() => undefined, () => ask(96)]) {
      policies = new VolumePolicies();
      policies.observe(POD, [cache(128)], mi(128));
      before();
      expect(policies.observe(POD, [cache(48)], mi(128))).toEqual([
        { name: 'cache', from: mi(128), to: mi(48), isKubelets: false },
      ]);
      expect(policies.observe(POD, [cache(48)], mi(128))).toEqual([]);
      expect(policy()).toEqual(absolute(48));
    }
  });

  test('a size is not attributed to another process if the shim has set it or if it differs by less than a page', () => {
    policies.observe(POD, [cache(128)], mi(128));
    policies.recordMounts(POD, [cache(192)]);
    expect(policies.observe(POD, [cache(192)], mi(192))).toEqual([]);
    const within = { ...cache(192), size: bytes(192 * MiB - 4095) };
    expect(policies.observe(POD, [within], mi(192))).toEqual([]);
    expect(policy()).toMatchObject({ kind: 'follow' });
  });

  test('a size that another process sets is recognized after a restart', () => {
    policies.observe(POD, [cache(128)], mi(128));
    restart();
    expect(policies.observe(POD, [cache(48)], mi(128))).toHaveLength(1);
    restart();
    expect(policy()).toEqual(absolute(48));
  });

  test('a size that another process sets does not change the policy of an annotation', () => {
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': '50%' });
    ask(96);
    policies.observe(POD, [cache(96)], mi(128));
    expect(policies.observe(POD, [cache(48)], mi(128))).toEqual([]);
    expect(policy()).toEqual(absolute(96));

    policies = new VolumePolicies();
    policies.observe(POD, [cache(128)], mi(128));
    ask(96, true);
    // A request without an annotation does not remove the annotation.
    ask(80);
    restart();
    expect(policies.observe(POD, [cache(48)], mi(128))).toEqual([]);
    expect(policy()).toEqual(absolute(80));
    policies.setAnnotated(POD, 'cache', false);
    expect(policies.observe(POD, [cache(56)], mi(128))).toHaveLength(1);
  });
});

test('the size of a new mount does not replace a requested size', () => {
  policies.observe(POD, [cache(128)], mi(128));
  ask(96);
  policies.recordMounts(POD, [cache(96)]);
  expect(policies.observe(POD, [cache(128, '0:51')], mi(128))).toEqual([]);
  expect(policy()).toEqual(absolute(96));
  // After a reboot the mount is unknown.
  const [[, record] = []] = policies.records(POD);
  const { mount, ...rest } = record!;
  expect(mount).toEqual({ device: '0:51', size: mi(128) });
  policies = new VolumePolicies();
  policies.restore(POD, new Map<string, VolumeRecord>([['cache', rest]]));
  expect(policies.observe(POD, [cache(128)], mi(128))).toEqual([]);
  expect(policy()).toEqual(absolute(96));
});

test('the policies of a removed pod are dropped', () => {
  policies.observe(POD, [cache(128)], mi(128));
  policies.forget(POD);
  expect([policy(), policies.records(POD).size]).toEqual([{ kind: 'fixed' }, 0]);
});
