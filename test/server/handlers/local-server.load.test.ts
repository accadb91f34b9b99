import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { noCounters } from '../../../src/core/observe/counters.ts';
import { createLog } from '../../../src/core/observe/log.ts';
import { createLocalServer } from '../../../src/server/handlers/local-server.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

// The grpc-js server is loaded with its first connection.
const js = vi.hoisted(() => ({ created: 0, fails: false, refuses: false, accepted: [] as unknown[], closed: 0 }));
vi.mock('../../../src/server/handlers/js-server.ts', () => ({
  createJsServer: () => {
    js.created += 1;
    if (js.fails) throw new Error('out of memory');
    return {
      accept: (connection: Duplex, peer: number) => {
        if (js.refuses) throw new Error('no connection');
        js.accepted.push([peer, connection.destroyed]);
      },
      close: () => (js.closed += 1),
    };
  },
}));

test('the server is loaded once; a connection ends if that fails, and the next one tries again', async () => {
  const lines: string[] = [];
  const log = createLog({ level: 'info', destination: { write: (line) => void lines.push(line) } });
  const handler = (): Promise<Buffer> => Promise.resolve(Buffer.from('answer'));
  const local = createLocalServer(new Map([['/s/A', handler]]), { log, counters: noCounters });
  const call = {
    path: '/s/A',
    request: Buffer.alloc(0),
    headers: [],
    deadline: Infinity,
    cancelled: false,
    signal: new AbortController().signal,
  };
  const answer = await new Promise((resolve) => local.handle(call, resolve));
  expect([answer, js.created]).toEqual([Buffer.from('answer'), 0]);

  js.fails = true;
  for (let count = 0; count < 3; count += 1) {
    const lost = [local.connect(1), local.connect(1)];
    for (const connection of lost) connection.resume();
    await Promise.all(lost.map((connection) => once(connection, 'end')));
  }
  // Clients repeat their calls.
  expect(lines.filter((line) => line.includes('compressed calls failed to load'))).toHaveLength(1);
  js.created = 1;

  js.fails = false;
  local.connect(2);
  local.connect(3);
  await vi.waitFor(
    () =>
      expect(js.accepted).toEqual([
        [2, false],
        [3, false],
      ]),
    LONG_WAIT,
  );
  expect(js.created).toBe(2);

  js.refuses = true;
  for (let count = 0; count < 2; count += 1) {
    const refused = local.connect(5);
    refused.resume();
    await once(refused, 'end');
  }
  js.refuses = false;
  expect(lines.filter((line) => line.includes('does not accept a connection'))).toHaveLength(1);
  local.connect(6);
  await vi.waitFor(() => expect(js.accepted.splice(2)).toEqual([[6, false]]), LONG_WAIT);
  expect(js.created).toBe(2);

  local.close();
  await vi.waitFor(() => expect(js.closed).toBe(1), LONG_WAIT);
  const late = local.connect(4);
  late.resume();
  await once(late, 'end');
  await turn();
  expect(js.accepted).toHaveLength(2);
});
