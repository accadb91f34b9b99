import { describe, expect, test } from 'vitest';
import { type Baseline, firstChange } from '../../../src/kubernetes/annotations/change.ts';
import { bytes } from '../../../src/core/quantities/index.ts';
import type { VolumePolicy } from '../../../src/tmpfs/sizes.ts';

const MiB = 1024 * 1024;
const baseline = (parts: Partial<Omit<Baseline, 'policy'>> & { policy?: VolumePolicy } = {}): Baseline => ({
  atCreation: parts.atCreation ?? {},
  requested: parts.requested ?? {},
  policy: () => parts.policy ?? { kind: 'fixed' },
});

describe('an annotation', () => {
  test.each<[string, Record<string, string>, Baseline, unknown]>([
    ['that the pod was made with is no change', { a: '50%' }, baseline({ atCreation: { a: '50%' } }), undefined],
    ['that is new is one', { a: '50%' }, baseline(), { volume: 'a', text: '50%' }],
    ['that is another is one', { a: '60%' }, baseline({ atCreation: { a: '50%' } }), { volume: 'a', text: '60%' }],
    [
      'that was asked for last is none, whatever the pod was made with and holds now',
      { a: '60%' },
      baseline({ atCreation: { a: '50%' }, requested: { a: '60%' }, policy: { kind: 'absolute', size: bytes(MiB) } }),
      undefined,
    ],
    [
      'that is back at what the pod was made with is one, after another was asked for',
      { a: '50%' },
      baseline({ atCreation: { a: '50%' }, requested: { a: '60%' } }),
      { volume: 'a', text: '50%' },
    ],
    [
      'that is in force already is none, as long as nothing was asked for',
      { a: '1024Ki' },
      baseline({ atCreation: { a: '50%' }, policy: { kind: 'absolute', size: bytes(MiB) } }),
      undefined,
    ],
    [
      'that is in force, but not what was asked for last, is one: the other may still wait',
      { a: '1Mi' },
      baseline({ requested: { a: '2Mi' }, policy: { kind: 'absolute', size: bytes(MiB) } }),
      { volume: 'a', text: '1Mi' },
    ],
    ['that makes no sense is one', { a: 'huge' }, baseline(), { volume: 'a', text: 'huge' }],
    ['that has gone is one', {}, baseline({ atCreation: { a: '50%' } }), { volume: 'a', text: undefined }],
    [
      'that has gone after it was asked for is one',
      {},
      baseline({ requested: { a: '1Mi' } }),
      { volume: 'a', text: undefined },
    ],
    [
      'that has been gone for long is none',
      {},
      baseline({ atCreation: { a: '50%' }, requested: { a: '' } }),
      undefined,
    ],
    [
      'that has come back is one',
      { a: '50%' },
      baseline({ atCreation: { a: '50%' }, requested: { a: '' } }),
      { volume: 'a', text: '50%' },
    ],
    [
      'is found among others',
      { a: '1Mi', b: '2Mi' },
      baseline({ requested: { a: '1Mi' } }),
      { volume: 'b', text: '2Mi' },
    ],
  ])('%s', (_, seen, before, change) => {
    expect(firstChange(seen, before)).toEqual(change);
  });
});
