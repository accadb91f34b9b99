import { Metadata } from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { cancel } from '../../../src/resizectl/commands/cancel.ts';
import type { Context } from '../../../src/resizectl/commands/context.ts';
import { encodeStatusDetails } from '../../../src/server/unary/status.ts';

const DB = '11111111-0000-4000-8000-000000000000';
const OTHER = 'dbfe0123-0000-4000-8000-000000000000';
const dbPod = { sandbox_id: 'a'.repeat(64), uid: 'uid-db', namespace: 'default', name: 'db' };
const hexPod = { sandbox_id: 'b'.repeat(64), uid: 'uid-hex', namespace: 'default', name: 'dbfe0123' };
const webPod = { sandbox_id: 'c'.repeat(64), uid: 'uid-web', namespace: 'default', name: 'web' };
/** The deferred resizes, by pod. */
const waiting = new Map([
  [DB, dbPod],
  [OTHER, webPod],
]);

function unknownResize(): Error {
  const metadata = new Metadata();
  const info = { reason: 'UNKNOWN_RESIZE', metadata: {} };
  metadata.set('grpc-status-details-bin', encodeStatusDetails(5, 'no resize', info));
  return Object.assign(new Error('no resize'), { code: 5, details: 'no resize', metadata });
}

/** Runs `resizectl cancel` with a shim that accepts id prefixes. Returns the ids of the canceled resizes. */
async function cancelled(text: string, pods = [dbPod, webPod], namespace?: string): Promise<readonly string[]> {
  const ended: string[] = [];
  const call = (method: string, request: { id?: string; pod?: Partial<typeof dbPod> }): Promise<object> => {
    if (method === 'ListPods') return Promise.resolve({ pods: pods.map((identity) => ({ identity })) });
    if (method === 'GetPod') {
      const { uid, sandbox_id: sandbox } = request.pod ?? {};
      const identity = pods.find((pod) => pod.uid === uid || pod.sandbox_id === sandbox);
      const own = [...waiting].filter(([, pod]) => pod === identity);
      const history = own.map(([id]) => ({ id, state: 'DEFERRED', requester: { kind: 'API' } }));
      return Promise.resolve({ pod: { identity, history } });
    }
    const found = [...waiting].find(([id]) => id.startsWith(request.id ?? ''));
    if (found === undefined) return Promise.reject(unknownResize());
    ended.push(found[0]);
    const [id, pod] = found;
    return Promise.resolve({ resize: { id, pod, state: 'CANCELED', reason: '', message: '', steps: [], tries: 0 } });
  };
  const context = { client: { call }, output: 'json', namespace, print: () => undefined };
  await cancel(context as unknown as Context, text);
  return ended;
}

test('cancel matches a pod name of hexadecimal letters before the beginning of an id', async () => {
  expect(await cancelled('db')).toEqual([DB]);
  waiting.set(DB, hexPod);
  expect(await cancelled('dbfe0123', [hexPod, webPod])).toEqual([DB]);
  waiting.set(DB, dbPod);
});

test('cancel needs at least 8 characters of an id, so that a misspelled name cancels nothing', async () => {
  for (const text of ['d', 'db', 'dbfe012', 'c'])
    await expect(cancelled(text, [webPod])).rejects.toThrow(
      `no pod on this node is named "${text}", and the beginning of an id has at least 8 characters`,
    );
  expect(await cancelled('dbfe0123')).toEqual([OTHER]);
  // The pod is in another namespace than the one of -n.
  await expect(cancelled('db', undefined, 'shop')).rejects.toThrow('no pod on this node is named "db"');
});

test('cancel accepts a whole resize id, and the beginning of a pod id', async () => {
  expect(await cancelled(OTHER)).toEqual([OTHER]);
  expect(await cancelled('cccccccc')).toEqual([OTHER]);
  await expect(cancelled('ffffffff')).rejects.toThrow('no resize');
});
