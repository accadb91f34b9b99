import { describe, expect, test } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type Baseline, firstChange } from '../../../src/kubernetes/annotations/change.ts';
import type { VolumePolicy } from '../../../src/tmpfs/sizes.ts';

const baseline = (parts: Partial<Omit<Baseline, 'policy'>> & { policy?: VolumePolicy } = {}): Baseline => ({
  atCreation: parts.atCreation ?? {},
  requested: parts.requested ?? {},
  policy: () => parts.policy ?? { kind: 'fixed' },
});

describe('firstChange', () => {
  test.each<[string, Record<string, string>, Baseline, unknown]>([
    [
      'nothing for an annotation that the pod was created with',
      { a: '50%' },
      baseline({ atCreation: { a: '50%' } }),
      undefined,
    ],
    ['a new annotation', { a: '50%' }, baseline(), { volume: 'a', text: '50%' }],
    [
      'an annotation with another value',
      { a: '60%' },
      baseline({ atCreation: { a: '50%' } }),
      { volume: 'a', text: '60%' },
    ],
    [
      'nothing for the last requested annotation, for any initial and current policy',
      { a: '60%' },
      baseline({ atCreation: { a: '50%' }, requested: { a: '60%' }, policy: { kind: 'absolute', size: bytes(MiB) } }),
      undefined,
    ],
    [
      'an annotation with its initial value after another value was requested',
      { a: '50%' },
      baseline({ atCreation: { a: '50%' }, requested: { a: '60%' } }),
      { volume: 'a', text: '50%' },
    ],
    [
      'nothing for an annotation whose policy is in force and was never requested',
      { a: '1024Ki' },
      baseline({ atCreation: { a: '50%' }, policy: { kind: 'absolute', size: bytes(MiB) } }),
      undefined,
    ],
    [
      'an annotation whose policy is in force when another value was requested, which may still be deferred',
      { a: '1Mi' },
      baseline({ requested: { a: '2Mi' }, policy: { kind: 'absolute', size: bytes(MiB) } }),
      { volume: 'a', text: '1Mi' },
    ],
    ['an invalid annotation', { a: 'huge' }, baseline(), { volume: 'a', text: 'huge' }],
    [
      'a removed annotation that the pod was created with',
      {},
      baseline({ atCreation: { a: '50%' } }),
      { volume: 'a', text: undefined },
    ],
    [
      'a removed annotation that was requested',
      {},
      baseline({ requested: { a: '1Mi' } }),
      { volume: 'a', text: undefined },
    ],
    [
      'nothing for an annotation whose removal is already known',
      {},
      baseline({ atCreation: { a: '50%' }, requested: { a: '' } }),
      undefined,
    ],
    [
      'an annotation that was removed and added again',
      { a: '50%' },
      baseline({ atCreation: { a: '50%' }, requested: { a: '' } }),
      { volume: 'a', text: '50%' },
    ],
    [
      'a changed annotation among unchanged ones',
      { a: '1Mi', b: '2Mi' },
      baseline({ requested: { a: '1Mi' } }),
      { volume: 'b', text: '2Mi' },
    ],
  ])('firstChange returns %s', (_, seen, before, change) => {
    expect(firstChange(seen, before)).toEqual(change);
  });
});
