import { describe, expect, test } from 'vitest';
import { podText } from '../../../src/resizectl/output/views.ts';
import type { WirePodValues, WireValues } from '../../../src/api/wire/messages.ts';

const nothing = { cpu: '', memory: '' };
const values: WireValues = {
  limits: { cpu: '1', memory: '128Mi' },
  requests: nothing,
  cpu_max: '',
  memory_max: '',
  cpu_shares: 0,
  cpu_weight: 0,
  memory_used_bytes: 0,
};
const withVolume = (more: Partial<WirePodValues['volumes'][number]>): string =>
  podText({
    identity: { sandbox_id: 's', uid: 'u', namespace: 'default', name: 'web' },
    values: {
      pod: values,
      containers: [],
      volumes: [{ name: 'cache', size_bytes: 160 * 1024 ** 2, used_bytes: 0, policy: '160Mi', ...more }],
    },
  });

describe('a volume in the text of a pod', () => {
  test('is one row if it has neither warning nor error', () => {
    expect(withVolume({ warning: '' })).toMatch(/volume cache +160Mi +0 +160Mi\n$/);
  });

  test('is followed by its warning and its last error, without control characters', () => {
    const last_error = { reason: 'VOLUME_IN_USE', message: 'stores \u001b[31m24' };
    const text = withVolume({ warning: 'has 160Mi, more than 128Mi', last_error });
    const [error, warning] = text.trimEnd().split('\n').reverse();
    expect(warning).toBe('volume cache has 160Mi, more than 128Mi');
    expect(error).toMatch(/^volume cache: VOLUME_IN_USE: stores .*\[31m24$/);
    expect(error).not.toContain('\u001b');
  });
});
