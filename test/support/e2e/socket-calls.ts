import { expect } from 'vitest';
import { CriClient } from '../cri/client.ts';
import { OURS } from './kubelet-unit.ts';

// Calls through the socket of the shim, which the shim or its bypass answers.

/** Calls containerd on a new connection, as crictl does. Returns the milliseconds until the answer. */
export async function callOnNewConnection(): Promise<number> {
  const since = Date.now();
  const client = new CriClient(OURS);
  try {
    expect(await client.version()).toMatchObject({ runtime_name: 'containerd' });
  } finally {
    client.close();
  }
  return Date.now() - since;
}

/** Whether the shim answers, and not containerd itself. */
export async function isShim(): Promise<boolean> {
  const client = new CriClient(OURS);
  try {
    const { info } = await client.call<{ info: Readonly<Record<string, string>> }>('Status', { verbose: true });
    return 'cri-resize-shim' in info;
  } finally {
    client.close();
  }
}

/** Calls about every 20 ms on one connection, from before the function is called until it has returned. */
export async function callingThroughout(work: () => Promise<void>): Promise<readonly PromiseSettledResult<unknown>[]> {
  const client = new CriClient(OURS);
  await client.version();
  const calls: Promise<unknown>[] = [];
  const callOnce = (): void => {
    const call = client.version();
    call.catch(() => undefined);
    calls.push(call);
  };
  const timer = setInterval(callOnce, 20);
  try {
    callOnce();
    await work();
    callOnce();
  } finally {
    clearInterval(timer);
  }
  const results = await Promise.allSettled(calls);
  client.close();
  return results;
}

/** Returns the errors of the calls that have failed. */
export const rejected = (results: readonly PromiseSettledResult<unknown>[]): readonly unknown[] =>
  results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
