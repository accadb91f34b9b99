import { beforeEach, describe, expect, test } from 'vitest';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { VolumePolicies, assertWithinSizeLimits, excessWarning } from '../../../src/sandbox/volumes/policies.ts';
import { parseVolumeAnnotation } from '../../../src/tmpfs/sizes.ts';
import { type Bytes, bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { VolumeRecord } from '../../../src/sandbox/journal/record.ts';
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
  test('holds when the limit changes, also after a restart', () => {
    policies.observe(POD, [cache(128)], mi(128));
    restart();
    expect(policies.observe(POD, [cache(128)], mi(192))).toEqual([]);
    expect(policy()).toEqual({ kind: 'follow', atMost: mi(128) });
  });

  test('is not derived again when the limit becomes equal to the volume size', () => {
    policies.observe(POD, [cache(64)], mi(128));
    restart();
    policies.observe(POD, [cache(64)], mi(64));
    expect(policy()).toEqual({ kind: 'fixed' });
  });

  test('is not derived for a volume with an annotation', () => {
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': 'fixed' });
    policies.observe(POD, [cache(128)], mi(128));
    expect([policy(), policies.records(POD).size]).toEqual([{ kind: 'fixed' }, 0]);
  });
});

describe('a volume that follows the pod limit on a node with 256 MiB for pods', () => {
  const sizeFor = (pod: number, size: number): Bytes | undefined =>
    policies.targets(POD, [{ name: 'cache', size: mi(size) }], mi(pod), new Map()).get('cache');

  test('does not grow above them, as kubelet would not mount it larger, and shrinks with the limit', () => {
    policies = new VolumePolicies({ nodeMemory: () => mi(256), declared: () => new Map([['cache', {}]]) });
    policies.observe(POD, [cache(128)], mi(128));
    expect([sizeFor(192, 128), sizeFor(512, 128), sizeFor(64, 256)]).toEqual([mi(192), mi(256), mi(64)]);
  });

  test('stays as large as it is if it is larger', () => {
    policies = new VolumePolicies({ nodeMemory: () => mi(256) });
    policies.observe(POD, [cache(384)], mi(384));
    expect([sizeFor(512, 384), sizeFor(320, 384)]).toEqual([undefined, mi(320)]);
  });

  test('keeps the size that kubelet has mounted it with, if its size limit and the pod limit are larger', () => {
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
    policies = new VolumePolicies({ declared: (id) => (id === POD ? new Map([['cache', volume]]) : undefined) });
  };

  test('equal to the pod limit keeps the volume there when the pod grows, and it shrinks with the pod', () => {
    spec(128);
    policies.observe(POD, [cache(128)], mi(128));
    expect(policy()).toEqual({ kind: 'follow', atMost: mi(128) });
    expect([limits(256), limits(64)]).toEqual([mi(128), mi(64)]);
  });

  test('above the pod limit is as far as the volume grows', () => {
    spec(200);
    policies.observe(POD, [cache(128)], mi(128));
    expect([limits(160), limits(256)]).toEqual([mi(160), mi(200)]);
  });

  test('below the pod limit holds until the pod is smaller, and again when it grows', () => {
    spec(64);
    policies.observe(POD, [cache(64)], mi(128));
    expect([limits(256), limits(32)]).toEqual([mi(64), mi(32)]);
    policies.recordMounts(POD, [cache(32)]);
    expect(limits(256)).toEqual(mi(64));
  });

  test('bounds the volume also after an earlier shim has let it grow past it', () => {
    policies.observe(POD, [cache(128)], mi(128));
    policies.recordMounts(POD, [cache(256)]);
    const records = policies.records(POD);
    spec(128);
    policies.restore(POD, records);
    expect(limits(256)).toEqual(mi(128));
  });

  test('does not touch a volume that something else has made larger, and is nothing to an annotation or a request', () => {
    spec(64);
    policies.observe(POD, [cache(100)], mi(128));
    expect(policy()).toEqual({ kind: 'fixed' });
    ask(96);
    expect(policy()).toEqual(absolute(96));
    spec(64);
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': 'follow' });
    expect(policy()).toEqual({ kind: 'follow' });
  });

  test('that is absent leaves the volume to the pod limit', () => {
    spec();
    policies.observe(POD, [cache(128)], mi(128));
    expect(limits(256)).toEqual(mi(256));
  });
});

describe('a volume whose size limit is not known, since kubelet evicts a pod that stores more', () => {
  const target = (pod: number, size: number): Bytes | undefined =>
    policies.targets(POD, [{ name: 'cache', size: mi(size) }], mi(pod), new Map()).get('cache');

  test('shrinks with the pod, and grows no larger than it was mounted, also after a restart and a reboot', () => {
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
    // Its size limit is no smaller than any mount of kubelet.
    policies.observe(POD, [cache(256, '0:52')], mi(256));
    expect(policy()).toEqual({ kind: 'follow', atMost: mi(256) });
  });

  test('that has grown with the spec keeps its size while the spec is not known yet', () => {
    policies = new VolumePolicies({ declared: () => new Map([['cache', { sizeLimit: mi(256) }]]) });
    policies.observe(POD, [cache(128)], mi(128));
    policies.recordMounts(POD, [cache(256)]);
    restart();
    policies.observe(POD, [cache(256)], mi(256));
    expect([target(384, 256), target(192, 256)]).toEqual([undefined, mi(192)]);
  });

  test('of a record of 0.1.0 grows no larger than it is', () => {
    policies.restore(
      POD,
      new Map([['cache', { policy: { kind: 'follow' }, source: 'seen', annotated: false, mount: cache(128) }]]),
    );
    policies.observe(POD, [cache(128)], mi(128));
    expect([target(384, 128), policies.records(POD).get('cache')?.mounted]).toEqual([undefined, mi(128)]);
  });

  test('grows with the pod if somebody has said so', () => {
    policies.observe(POD, [cache(128)], mi(128));
    policies.adopt(POD, [['cache', { policy: { kind: 'follow' }, annotated: false }]]);
    expect(target(384, 128)).toBe(mi(384));
    policies = new VolumePolicies();
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': '50%' });
    expect(target(384, 128)).toBe(mi(192));
  });
});

test('a size or a share above the size limit in the spec, since kubelet evicts a pod that stores more, is as large as that', () => {
  policies = new VolumePolicies({ declared: () => new Map([['cache', { sizeLimit: mi(64) }]]) });
  const target = (value: string, size: number): Bytes | undefined => {
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': value });
    return policies
      .targets(POD, [{ name: 'cache', size: mi(size) }], mi(128), new Map([['web', mi(100)]]))
      .get('cache');
  };
  for (const value of ['192Mi', '100%', '80%/web', 'follow']) expect(target(value, 32)).toBe(mi(64));
  // A volume that is larger already keeps its size: it may store as much.
  expect([target('192Mi', 100), target('48Mi', 100)]).toEqual([undefined, mi(48)]);
});

describe('a request above the size limit in the spec', () => {
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

  test.each(['cache=192Mi', 'cache=51%', 'cache=80%/web'])('is rejected with both figures: %s', (key) => {
    expect(request(key)).toThrow(
      expect.objectContaining({
        code: 9,
        reason: 'VOLUME_EXCEEDS_SIZE_LIMIT',
        context: expect.objectContaining({ volume: 'cache', found: String(64 * MiB) }) as object,
      }),
    );
  });

  test.each([
    'cache=64Mi',
    'cache=50%',
    'cache=64%/web',
    'cache=follow',
    'cache=fixed',
    'cache=90%/none',
    'other=192Mi',
  ])('is none: %s', (key) => expect(request(key)).not.toThrow());
});

test('a volume that is larger than its size limit is reported with what kubelet does', () => {
  expect(excessWarning(mi(96), mi(128), mi(64))).toBe(
    'has 96Mi, more than its sizeLimit, 64Mi: kubelet evicts the pod if more is stored',
  );
  expect([excessWarning(mi(64), mi(128), mi(64)), excessWarning(mi(96), mi(128))]).toEqual([undefined, undefined]);
});

describe('A10: with volumesFollow: never', () => {
  test('no volume follows the pod limit unless an annotation or a request says so', () => {
    policies = new VolumePolicies({ follow: 'never', declared: () => new Map([['cache', { sizeLimit: mi(128) }]]) });
    policies.observe(POD, [cache(128)], mi(128));
    expect(policy()).toEqual({ kind: 'fixed' });
    policies.annotate(POD, { 'volume.cri-resize-shim.io/cache': 'follow' });
    expect(policy()).toEqual({ kind: 'follow' });
  });

  test('a volume that an earlier shim has seen to follow stays as it is', () => {
    policies.observe(POD, [cache(128)], mi(128));
    const records = policies.records(POD);
    policies = new VolumePolicies({ follow: 'never' });
    policies.restore(POD, records);
    expect(policy()).toEqual({ kind: 'fixed' });
  });
});

describe('a size that another process sets on a mounted volume', () => {
  test('becomes the policy and is reported once, for any previous policy', () => {
    for (const before of [() => undefined, () => ask(96)]) {
      policies = new VolumePolicies();
      policies.observe(POD, [cache(128)], mi(128));
      before();
      expect(policies.observe(POD, [cache(48)], mi(128))).toEqual([{ name: 'cache', from: mi(128), to: mi(48) }]);
      expect(policies.observe(POD, [cache(48)], mi(128))).toEqual([]);
      expect(policy()).toEqual(absolute(48));
    }
  });

  test('is not assumed when the shim set the size, or when it differs by less than a page', () => {
    policies.observe(POD, [cache(128)], mi(128));
    policies.recordMounts(POD, [cache(192)]);
    expect(policies.observe(POD, [cache(192)], mi(192))).toEqual([]);
    const within = { ...cache(192), size: bytes(192 * MiB - 4095) };
    expect(policies.observe(POD, [within], mi(192))).toEqual([]);
    expect(policy()).toMatchObject({ kind: 'follow' });
  });

  test('is recognized after a restart', () => {
    policies.observe(POD, [cache(128)], mi(128));
    restart();
    expect(policies.observe(POD, [cache(48)], mi(128))).toHaveLength(1);
    restart();
    expect(policy()).toEqual(absolute(48));
  });

  test('does not change the policy of a volume with an annotation, of the pod or of a later request', () => {
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
