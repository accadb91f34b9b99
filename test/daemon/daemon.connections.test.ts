import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { CONNECTION_LIMIT } from '../../src/server/client-connections.ts';
import type { FakeBackend } from '../support/daemon/fake-backend.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';

const daemon = new TestDaemon();

/** For each input line, opens a connection with an endless call. Prints a line for each connection that ends. */
const LEAK = `
const { connect } = require('node:http2');
const { createConnection } = require('node:net');
const [, path] = process.argv;
const headers = { ':method': 'POST', ':path': '/s/Hang', 'content-type': 'application/grpc', te: 'trailers' };
require('node:readline').createInterface({ input: process.stdin }).on('line', () => {
  const session = connect('http://localhost', { createConnection: () => createConnection(path) });
  session.on('error', () => undefined).on('close', () => console.log('ended'));
  session.request(headers).on('error', () => undefined).end(Buffer.alloc(5));
});
`;

/** Another process, which does not close its connections. */
class LeakingClient {
  readonly #process;
  ended = 0;

  constructor(path: string) {
    this.#process = spawn(process.execPath, ['-e', LEAK, path], { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface({ input: this.#process.stdout }).on('line', () => {
      this.ended += 1;
      this.#process.emit('ended');
    });
    daemon.cleanUp(async () => {
      this.#process.kill();
      await once(this.#process, 'close');
    });
  }

  /** Opens connections until the backend has this many calls more. */
  async open(count: number, backend: FakeBackend): Promise<void> {
    let running = 0;
    const all = new Promise<void>((resolve) =>
      backend.events.on('hanging', () => (running += 1) === count && resolve()),
    );
    this.leak(count);
    await all;
    backend.events.removeAllListeners();
  }

  leak(count: number): void {
    this.#process.stdin.write('\n'.repeat(count));
  }

  async untilEnded(count: number): Promise<void> {
    while (this.ended < count) await once(this.#process, 'ended');
  }
}

test('a process that leaks connections with running calls does not lock out other processes', async () => {
  const backend = await daemon.startBackend();
  const program = daemon.start();
  await program.logged('serving');
  const kubelet = daemon.connect();
  expect(await kubelet.code('/s/Echo')).toBe(0);
  const agent = new LeakingClient(daemon.listen);
  await agent.open(CONNECTION_LIMIT - 1, backend);
  // Its own connections are refused, and kubelet keeps its idle one.
  agent.leak(3);
  await agent.untilEnded(3);
  expect(await kubelet.code('/s/Echo')).toBe(0);
  expect(agent.ended).toBe(3);
  // Two more of kubelet's connections end two of the agent's.
  for (const ended of [4, 5]) {
    daemon
      .connect()
      .stream('/s/Stream')
      .on('error', () => undefined);
    await agent.untilEnded(ended);
  }
  expect(await daemon.connect().code('/s/Echo')).toBe(0);
  expect(await program.logged('too many client connections')).toMatchObject({
    level: 'warn',
    held: CONNECTION_LIMIT - 1,
  });
});

test('a new connection does not end connections with running calls of processes that have few connections each', async () => {
  const backend = await daemon.startBackend();
  await daemon.start().logged('serving');
  const agents = Array.from({ length: 5 }, () => new LeakingClient(daemon.listen));
  const share = CONNECTION_LIMIT / 4 - 1;
  for (const [at, agent] of agents.entries()) await agent.open(at < 4 ? share : CONNECTION_LIMIT - 4 * share, backend);
  expect(await daemon.connect().code('/s/Echo')).not.toBe(0);
  expect(agents.map(({ ended }) => ended)).toEqual([0, 0, 0, 0, 0]);
});
