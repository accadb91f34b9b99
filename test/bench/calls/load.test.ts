import { expect, test } from 'vitest';
import { load } from '../../../bench/calls/load.ts';
import type { BenchClient, Done } from '../../../bench/client/client.ts';

const call = { path: '/a.B/C', request: Buffer.alloc(0) };

/** Answers in a later turn. Counts the calls that are under way at the same time. */
class FakeClient implements BenchClient {
  calls = 0;
  most = 0;
  #running = 0;

  constructor(private readonly error?: Error) {}

  start(_: typeof call, done: Done): void {
    this.calls += 1;
    this.#running += 1;
    this.most = Math.max(this.most, this.#running);
    setImmediate(() => {
      this.#running -= 1;
      done(this.error);
    });
  }

  call(): Promise<Buffer> {
    return Promise.resolve(Buffer.alloc(0));
  }

  close(): void {
    this.calls = 0;
  }
}

test('load makes calls on all sides, with the requested number in flight', async () => {
  const [direct, shim] = [new FakeClient(), new FakeClient()];
  let cpu = 0;
  const sides = [
    { name: 'direct', client: direct },
    { name: 'shim', client: shim, cpuMicroseconds: () => (cpu += 1e9) },
  ] as const;
  const { direct: first, shim: second } = await load(sides, { call, inFlight: 3, seconds: 0.2 });
  expect([direct.most, shim.most]).toEqual([3, 3]);
  expect(first?.cpuUs).toBeNull();
  expect(second?.cpuUs).toBeGreaterThan(0);
  expect(second?.rps).toBeGreaterThan(0);
  expect(second?.p99us).toBeGreaterThanOrEqual(second?.p50us ?? Infinity);
});

test('load rejects with the side and the method if a call fails', async () => {
  const sides = [{ name: 'relay', client: new FakeClient(new Error('no')) }] as const;
  await expect(load(sides, { call, inFlight: 1, seconds: 0.1 })).rejects.toThrow('relay, /a.B/C: no');
});
