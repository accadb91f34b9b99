import { Metadata } from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { Context } from '../../../src/resizectl/commands/context.ts';
import { watchPods } from '../../../src/resizectl/commands/events.ts';
import { encodeStatusDetails } from '../../../src/server/unary/status.ts';

const identityOf = (name: string) => ({ sandbox_id: name.repeat(32), uid: `uid-${name}`, namespace: 'default', name });
const [web, db] = [identityOf('we'), identityOf('db')];

function failure(code: number, reason: string): Error {
  const metadata = new Metadata();
  metadata.set('grpc-status-details-bin', encodeStatusDetails(code, reason, { reason, metadata: {} }));
  return Object.assign(new Error(reason), { code, details: `it is ${reason}`, metadata });
}

/** Errors of GetPod by sandbox id, in place of the pod. */
type Failures = Readonly<Record<string, Error>>;

/** Returns containerd's socket, and the output of the removal. */
async function watched(ended: readonly (typeof web)[], failures: Failures = {}, output: Context['output'] = 'table') {
  const calls: string[] = [];
  const printed: string[] = [];
  const call = (method: string, request: { pod?: Partial<typeof web> }): Promise<object> => {
    const id = request.pod?.sandbox_id ?? '';
    calls.push(`${method} ${id.slice(0, 2)}`.trim());
    if (method === 'ListPods') return Promise.resolve({ pods: [{ identity: web }, { identity: db }] });
    if (failures[id] !== undefined) return Promise.reject(failures[id]);
    return Promise.resolve({ pod: { identity: [web, db].find(({ sandbox_id: other }) => other === id) } });
  };
  const events = ended.map((pod) => ({ pod, state: { state: 'COMPLETED' } }));
  const watch = () => Object.assign(toStream(events), { opened: Promise.resolve() });
  const print = (text: string): void => void printed.push(text);
  await watchPods({ client: { call, watch }, output, isWide: false, print } as unknown as Context, undefined);
  return { calls, printed: printed.slice(output === 'table' ? 1 : 2) };
}

async function* toStream(events: readonly object[]) {
  for (const event of events) yield await Promise.resolve(event);
}

describe('watch', () => {
  test('watch reads only the pod whose resize has ended', async () => {
    const { calls, printed } = await watched([web, db]);
    expect(calls).toEqual(['ListPods', 'GetPod we', 'GetPod db']);
    expect(printed.map((line) => line.split(/ +/)[1])).toEqual(['we', 'db']);
  });

  test('watch shows the reason for a pod that cannot be read, and continues', async () => {
    const failures = { [web.sandbox_id]: failure(14, 'BACKEND_UNAVAILABLE') };
    const { printed } = await watched([web, db], failures);
    expect(printed).toEqual([
      expect.stringMatching(/^default +we .*BACKEND_UNAVAILABLE\n$/),
      expect.stringMatching(/^default +db /),
    ]);
  });

  test('watch reports that a pod is gone', async () => {
    const { printed } = await watched([web, db], { [web.sandbox_id]: failure(5, 'UNKNOWN_POD') });
    expect(printed[0]).toBe('default/we (wewewewewewew) is gone\n');
    expect(printed).toHaveLength(2);
  });

  test.each(['json', 'yaml'] as const)('watch prints an object also for a pod that is gone: %s', async (output) => {
    const { printed } = await watched([web], { [web.sandbox_id]: failure(5, 'UNKNOWN_POD') }, output);
    expect(printed.map((line) => parse(line) as unknown)).toEqual([
      { identity: web, unreadable: { reason: 'UNKNOWN_POD', message: 'it is UNKNOWN_POD' } },
    ]);
  });

  test('watch ends with the error if the shim does not answer', async () => {
    const error = Object.assign(new Error('14 UNAVAILABLE'), { code: 14, details: '', metadata: new Metadata() });
    await expect(watched([web], { [web.sandbox_id]: error })).rejects.toBe(error);
  });
});
