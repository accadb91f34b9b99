import { describe, expect, test } from 'vitest';
import { UsageError } from '../../../src/resizectl/output/failure.ts';
import { chooseFrom, findPod } from '../../../src/resizectl/output/pods.ts';

const ids = ['aaaa1111bbbb2222', 'aaaa3333cccc4444', 'dddd5555eeee6666'];

test.each(['', 'default/', 'a/b/c'])(
  'the error about the invalid pod %j names the pod and each accepted form',
  async (text) => {
    const client = { call: () => Promise.reject(new Error('called')) };
    await expect(findPod({ client } as unknown as Parameters<typeof findPod>[0], text)).rejects.toThrow(
      `invalid pod ${JSON.stringify(text)}: expected NAME, NAMESPACE/NAME, a uid or sandbox id, or a prefix of one`,
    );
  },
);

test('pod/NAME is a name, as in kubectl, also with a namespace', async () => {
  const identity = { sandbox_id: ids[0]!, uid: 'uid-1', namespace: 'default', name: 'web' };
  const client = { call: () => Promise.resolve({ pods: [{ identity }] }) };
  const find = { client, namespace: undefined } as unknown as Parameters<typeof findPod>[0];
  for (const text of ['pod/web', 'pods/web', 'po/web']) expect(await findPod(find, text)).toEqual({ uid: 'uid-1' });
  expect(await findPod(find, 'pod/default/web')).toEqual({ name: { namespace: 'default', name: 'web' } });
  // A namespace with this name takes precedence.
  identity.namespace = 'pod';
  expect(await findPod(find, 'pod/db')).toEqual({ name: { namespace: 'pod', name: 'db' } });
});

describe('chooseFrom', () => {
  const pods = [
    { sandbox_id: ids[0]!, uid: 'uid-1', namespace: 'default', name: 'web' },
    { sandbox_id: ids[1]!, uid: 'uid-2', namespace: 'other', name: 'web' },
    { sandbox_id: ids[2]!, uid: 'uid-3', namespace: 'default', name: 'aaaa' },
  ];
  // One pod has two sandboxes, of which one has ended.
  const withEnded = [...pods, { sandbox_id: 'ffff', uid: 'uid-3', namespace: 'default', name: 'aaaa' }];

  test('finds a pod by name before id, and by the beginning of an id or uid', () => {
    expect(chooseFrom(withEnded, 'aaaa')).toEqual({ uid: 'uid-3' });
    expect(chooseFrom(pods, 'aaaa1')).toEqual({ sandbox_id: ids[0] });
    expect(chooseFrom(pods, 'dddd')).toEqual({ sandbox_id: ids[2] });
    expect(chooseFrom(withEnded, 'uid-3')).toEqual({ uid: 'uid-3' });
  });

  test('rejects a text that matches several pods, and lists them', () => {
    const message = (text: string): string => {
      try {
        return JSON.stringify(chooseFrom(pods, text));
      } catch (error) {
        if (error instanceof UsageError) return error.message;
        throw error;
      }
    };
    const both = '  default/web (aaaa1111bbbb2)\n  other/web (aaaa3333cccc4)';
    expect(message('web')).toBe(`"web" matches several pods, specify one of:\n${both}`);
    expect(message('aaa')).toBe(`"aaa" matches several pods, specify one of:\n${both}`);
    expect(message('uid-')).toMatch(/^"uid-" matches several pods, specify one of:(?:\n {2}.*){3}$/);
    expect(message('we')).toMatch(/^no pod on this node matches "we"/);
  });
});
