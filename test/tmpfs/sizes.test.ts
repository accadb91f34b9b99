import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Bytes, bytes, type Limit } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import {
  isSameSize,
  parseVolumeAnnotation,
  policyAtFirstSight,
  readVolumeAnnotations,
  targetSize,
  VOLUME_ANNOTATION,
  type VolumePolicy,
} from '../../src/tmpfs/sizes.ts';

const key = `${VOLUME_ANNOTATION}cache`;
const none = new Map<string, Limit<Bytes>>();

describe('a volume annotation', () => {
  test.each<[string, VolumePolicy]>([
    ['256Mi', { kind: 'absolute', size: bytes(256 * MiB) }],
    ['1.5G', { kind: 'absolute', size: bytes(1_500_000_000) }],
    ['50%', { kind: 'share', hundredths: 5000 }],
    ['12.5%', { kind: 'share', hundredths: 1250 }],
    ['0.01%', { kind: 'share', hundredths: 1 }],
    ['1000%', { kind: 'share', hundredths: 100_000 }],
    ['50%/web', { kind: 'container-share', hundredths: 5000, container: 'web' }],
    ['follow', { kind: 'follow' }],
    ['fixed', { kind: 'fixed' }],
  ])('the volume annotation %s is parsed', (value, policy) => {
    expect(parseVolumeAnnotation(key, value)).toEqual({ volume: 'cache', policy });
  });

  test.each([
    '',
    '0',
    '0Mi',
    '1',
    '4095',
    '0%',
    '0.00%',
    '-5%',
    '5 %',
    '%',
    '1000.01%',
    '10000%',
    '1.234%',
    '50%/',
    '50%/Web',
    '50%/web/other',
    '50%/we b',
    '50%/web\n',
    '50% ',
    'half',
    'Follow',
    'fixed ',
    '256MiB',
    '-256Mi',
    'x'.repeat(10_000),
  ])('the volume annotation %j is rejected with its key and value', (value) => {
    expect(() => parseVolumeAnnotation(key, value)).toThrow(
      expect.objectContaining({
        code: 3,
        reason: 'INVALID_ANNOTATION',
        message: expect.stringContaining(key) as string,
        context: { file: key, asked: value.slice(0, 80) },
      }),
    );
  });

  test.each([
    ['much', '"much": expected 256Mi, 50%, 50%/<container>, follow or fixed'],
    ['folow', '"folow": expected 256Mi, 50%, 50%/<container>, follow or fixed: did you mean follow?'],
    ['Fixed', '"Fixed": expected 256Mi, 50%, 50%/<container>, follow or fixed: did you mean fixed?'],
    ['0', '"0": a volume needs a size'],
    ['9007199254740991', '"9007199254740991": a volume has less than 8Pi'],
    ['x%', '"x%": a share is a number with at most two decimals, and %'],
    ['0%', '"0%": a share is more than 0% and at most 1000%'],
    ['5%/A', '"5%/A": not the name of a container: "A"'],
  ])('the volume annotation %s is rejected with the reason', (value, why) => {
    expect(() => parseVolumeAnnotation(key, value)).toThrow(`annotation ${key}: ${why}`);
  });

  test('the key of a volume annotation ends in the name of a volume, which can be one letter', () => {
    expect(parseVolumeAnnotation(`${VOLUME_ANNOTATION}a`, 'fixed').volume).toBe('a');
    expect(() => parseVolumeAnnotation('cache', 'fixed')).toThrow('the key does not end in the name of a volume');
  });

  test.each(['', 'a/b', '..', 'Cache', '-a', 'a'.repeat(64), 'a_b'])(
    'a volume annotation is rejected for the volume name %j',
    (name) => {
      expect(() => parseVolumeAnnotation(`${VOLUME_ANNOTATION}${name}`, 'follow')).toThrow(
        expect.objectContaining({ reason: 'INVALID_ANNOTATION' }),
      );
    },
  );

  test('all volume annotations of a pod are read, with invalid ones as errors, and other annotations are ignored', () => {
    const { policies, errors } = readVolumeAnnotations({
      [`${VOLUME_ANNOTATION}cache`]: '50%',
      [`${VOLUME_ANNOTATION}scratch`]: 'much',
      [`${VOLUME_ANNOTATION}tmp`]: 'fixed',
      'kubernetes.io/config.source': 'api',
      'other.cri-resize-shim.io/cache': 'much',
    });
    expect([...policies]).toEqual([
      ['cache', { kind: 'share', hundredths: 5000 }],
      ['tmp', { kind: 'fixed' }],
    ]);
    expect(errors.map(({ context }) => context)).toEqual([{ file: `${VOLUME_ANNOTATION}scratch`, asked: 'much' }]);
  });
});

describe('targetSize', () => {
  const share = (hundredths: number): VolumePolicy => ({ kind: 'share', hundredths });

  test('the target size of an absolute policy is its size, for any limits', () => {
    const policy: VolumePolicy = { kind: 'absolute', size: bytes(5) };
    for (const limit of [undefined, 'max', bytes(1)] as const) expect(targetSize(policy, limit, none)).toBe(5);
  });

  test('the target size is undefined for a fixed volume, and for a share without a limit', () => {
    expect(targetSize({ kind: 'fixed' }, bytes(MiB), none)).toBeUndefined();
    for (const policy of [share(5000), { kind: 'follow' }] as const) {
      expect(targetSize(policy, 'max', none)).toBeUndefined();
      expect(targetSize(policy, undefined, none)).toBeUndefined();
    }
    const ofWeb: VolumePolicy = { kind: 'container-share', hundredths: 5000, container: 'web' };
    expect(targetSize(ofWeb, bytes(MiB), none)).toBeUndefined();
    expect(targetSize(ofWeb, bytes(MiB), new Map([['web', 'max']]))).toBeUndefined();
  });

  test('the target size is a share of the limit of the pod or of a container', () => {
    const limits = new Map([['web', bytes(100 * MiB)]]);
    expect(targetSize(share(5000), bytes(256 * MiB), limits)).toBe(128 * MiB);
    expect(targetSize(share(15_000), bytes(256 * MiB), limits)).toBe(384 * MiB);
    const ofWeb: VolumePolicy = { kind: 'container-share', hundredths: 2500, container: 'web' };
    expect(targetSize(ofWeb, bytes(256 * MiB), limits)).toBe(25 * MiB);
    expect(targetSize({ kind: 'follow' }, bytes(256 * MiB), limits)).toBe(256 * MiB);
  });

  test('the target size of a share is rounded down to whole pages, at least one, and exact for any limit', () => {
    const anyLimit = fc.oneof(fc.maxSafeNat(), fc.nat({ max: 1e6 }));
    const anyPage = fc.constantFrom(4096, 16_384, 65_536);
    fc.assert(
      fc.property(anyLimit, fc.integer({ min: 1, max: 100_000 }), anyPage, (limit, hundredths, page) => {
        const size = BigInt(targetSize(share(hundredths), bytes(limit), none, bytes(page)) ?? -1);
        expect(size % BigInt(page)).toBe(0n);
        expect(size).toBeGreaterThanOrEqual(BigInt(page));
        const exact = BigInt(limit) * BigInt(hundredths); // in hundredths of a percent of a byte
        const largest = BigInt(Number.MAX_SAFE_INTEGER) * 10_000n;
        if (exact < largest && size > BigInt(page)) {
          expect(size * 10_000n).toBeLessThanOrEqual(exact);
          expect((size + BigInt(page)) * 10_000n).toBeGreaterThan(exact);
        }
      }),
    );
  });
});

describe('the policy of a volume without annotation', () => {
  test('a volume without annotation has the policy `follow` when its size equals the pod limit, within a page', () => {
    expect(policyAtFirstSight(bytes(256 * MiB), bytes(256 * MiB))).toEqual({ kind: 'follow' });
    // 100M: the kernel rounds the volume up to a page, and memory.max down.
    expect(policyAtFirstSight(bytes(100_003_840), bytes(99_999_744))).toEqual({ kind: 'follow' });
  });

  test.each<[number, Limit<Bytes> | undefined]>([
    [256 * MiB, bytes(512 * MiB)],
    [256 * MiB + 8192, bytes(256 * MiB)],
    [256 * MiB, 'max'],
    [256 * MiB, undefined],
  ])(
    'a volume without annotation has the policy `fixed` when mounted with %i bytes and the limit is %s',
    (mounted, limit) => {
      expect(policyAtFirstSight(bytes(mounted), limit)).toEqual({ kind: 'fixed' });
    },
  );

  test('isSameSize compares whole pages', () => {
    expect(isSameSize(bytes(1), bytes(4096))).toBe(true);
    expect(isSameSize(bytes(4097), bytes(4096))).toBe(false);
    expect(isSameSize(bytes(4096), bytes(8192))).toBe(false);
    expect(isSameSize(bytes(4097), bytes(65_536), bytes(65_536))).toBe(true);
  });
});
