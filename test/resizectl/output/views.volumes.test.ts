import { describe, expect, test } from 'vitest';
import { changesTable, podText } from '../../../src/resizectl/output/views.ts';
import type { Messages } from '../../../src/server/api/messages.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

const nothing = { cpu: '', memory: '' };
const values: Messages['Values'] = {
  limits: { cpu: '1', memory: '128Mi' },
  requests: nothing,
  cpu_max: '',
  memory_max: '',
  cpu_shares: 0,
  cpu_weight: 0,
  memory_used_bytes: 0,
};
const withVolume = (more: Partial<Messages['PodValues']['volumes'][number]>): string =>
  podText({
    identity: { sandbox_id: 's', uid: 'u', namespace: 'default', name: 'web' },
    values: {
      pod: values,
      containers: [],
      volumes: [{ name: 'cache', size_bytes: 160 * MiB, used_bytes: 0, policy: '160Mi', ...more }],
    },
  });

interface Parts {
  readonly size: number;
  readonly request: string;
}

const podWith = ({ size = 160 * MiB, request = '' }: Partial<Parts>): Messages['PodValues'] => ({
  pod: { ...values, requests: { cpu: '', memory: request } },
  containers: [],
  volumes: [{ name: 'cache', size_bytes: size, used_bytes: 0, policy: '' }],
});

describe('a volume in the text of a pod', () => {
  test('the text of a pod has one row for a volume without warning and error', () => {
    expect(withVolume({ warning: '' })).toMatch(/volume cache +160Mi +0 +160Mi\n$/);
  });

  test('the text of a pod shows a warning and the last error below a volume, without control characters', () => {
    const last_error = { reason: 'VOLUME_IN_USE', message: 'stores \u001b[31m24' };
    const text = withVolume({ warning: 'has 160Mi, more than 128Mi', last_error });
    const [error, warning] = text.trimEnd().split('\n').reverse();
    expect(warning).toBe('volume cache has 160Mi, more than 128Mi');
    expect(error).toMatch(/^volume cache: VOLUME_IN_USE: stores .*\[31m24$/);
    expect(error).not.toContain('\u001b');
  });
});

describe('the changes of a resize', () => {
  const changes = (before: Partial<Parts>, after: Partial<Parts>): string =>
    changesTable({ before: podWith(before), after: podWith(after) });

  test.each([
    ['1500Mi', '1530Mi', 1500, 1530],
    ['10241Mi', '10280Mi', 10_241, 10_280],
  ])(
    'the changes of a resize show a volume that grows by less than a tenth of its unit: %s -> %s',
    (before, after, from, to) => {
      expect(changes({ size: from * MiB }, { size: to * MiB })).toBe(
        `               BEFORE${' '.repeat(Math.max(0, before.length - 6))}   AFTER\nvolume cache   ${before}   ${after}\n`,
      );
    },
  );

  test('the changes of a resize show a memory request that is not a whole number of kibibytes', () => {
    expect(changes({ request: '129000000' }, { request: '129010000' })).toMatch(
      /^pod memory request +129000000 +129010000$/m,
    );
  });
});
