import { describe, expect, test } from 'vitest';
import { describePod } from '../../src/runtime/description.ts';
import type { Messages } from '../../src/runtime/messages.ts';

const response = (config: object): Messages['PodSandboxStatusResponse'] =>
  ({
    status: { id: 'a' },
    info: { info: JSON.stringify({ config }) },
  }) as unknown as Messages['PodSandboxStatusResponse'];
const metadata = { uid: 'uid-1', name: 'web', namespace: 'default' };

describe('a pod described by its verbose status', () => {
  test('describePod returns the attempt of the sandbox, which shows whether it was replaced', () => {
    expect(describePod(response({ metadata: { ...metadata, attempt: 2 } }))?.metadata).toEqual({
      ...metadata,
      attempt: 2,
    });
  });

  test('describePod returns no attempt if the status has none or an invalid one', () => {
    expect(describePod(response({ metadata }))?.metadata).toEqual(metadata);
    expect(describePod(response({ metadata: { ...metadata, attempt: 'two' } }))?.metadata).toEqual(metadata);
  });

  test('describePod returns undefined for a status without a configuration', () => {
    expect(describePod(response({}))).toBeUndefined();
  });
});
