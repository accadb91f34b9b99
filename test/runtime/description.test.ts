import { describe, expect, test } from 'vitest';
import type { Messages } from '../../src/runtime/messages.ts';
import { describePod } from '../../src/runtime/description.ts';

const response = (config: object): Messages['PodSandboxStatusResponse'] =>
  ({
    status: { id: 'a' },
    info: { info: JSON.stringify({ config }) },
  }) as unknown as Messages['PodSandboxStatusResponse'];
const metadata = { uid: 'uid-1', name: 'web', namespace: 'default' };

describe('a pod as its verbose status describes it', () => {
  test('has the number of sandboxes before its own, which shows whether it was replaced', () => {
    expect(describePod(response({ metadata: { ...metadata, attempt: 2 } }))?.metadata).toEqual({
      ...metadata,
      attempt: 2,
    });
  });

  test('had no sandbox before, if the status does not say so', () => {
    expect(describePod(response({ metadata }))?.metadata).toEqual(metadata);
    expect(describePod(response({ metadata: { ...metadata, attempt: 'two' } }))?.metadata).toEqual(metadata);
  });

  test('is undefined without its configuration', () => {
    expect(describePod(response({}))).toBeUndefined();
  });
});
